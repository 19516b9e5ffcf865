package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/inbox"
	"github.com/forebaymq/forebay/client/outbox"
)

// An order is stored and announced, both or neither. Elsewhere the announcement has its effect once.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://shop@localhost/shop") // any PostgreSQL driver
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := client.New("http://localhost:8080", client.WithToken("..."))
	if err != nil {
		log.Fatal(err)
	}
	box, err := outbox.New()
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}

	relay, err := outbox.NewRelay(box, db, c)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Println("relay:", relay.Run(ctx)) }() // in this process, in others, or in both

	// The business change and its event.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET left = left - 1 WHERE item = 'lamp'"); err != nil { // first the row that the event is about,
		log.Fatal(err)
	}
	if _, err := box.Add(ctx, tx, "stock", client.Record{Key: []byte("lamp"), Value: []byte(`{"sold":1}`), Kind: client.KindJSON}); err != nil { // then the event
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	relay.Wake() // or let it look by itself, within a second

	// The consumer.
	seen, err := inbox.New()
	if err != nil {
		log.Fatal(err)
	}
	if err := seen.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	stock, err := c.GetTopic(ctx, "stock")
	if err != nil {
		log.Fatal(err)
	}
	messages, err := c.Lease(ctx, "stock", "statistics", client.LeaseOptions{Max: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		did, err := seen.Do(ctx, db, "statistics", inbox.RecordID(stock.TopicID, &m.Record), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE statistics SET sold = sold + 1 WHERE item = $1", string(m.Key))
			return err
		})
		if err != nil {
			continue // it is delivered again
		}
		if !did {
			fmt.Println("delivered before")
		}
		if err := c.Ack(ctx, "stock", "statistics", m.Receipt); err != nil {
			log.Println(err) // it is delivered again, and seen to be done
		}
	}
}
