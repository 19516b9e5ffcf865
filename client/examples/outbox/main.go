// Command outbox takes purchases in PostgreSQL, publishes those whose transactions commit, and books each of them once, although it is delivered twice.
//
//	make run                                      # in another terminal
//	export FOREBAY_TOKEN=$(cat .forebay/token)
//	export DATABASE_URL=postgres://localhost/postgres
//	go run ./client/examples/outbox
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	_ "github.com/jackc/pgx/v5/stdlib" // any driver for PostgreSQL will do

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/inbox"
	"github.com/forebaymq/forebay/client/outbox"
)

type purchase struct {
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

const (
	purchases      = 6
	purchasesTopic = "example-purchases"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := client.New(cmp.Or(os.Getenv("FOREBAY_SERVER"), "http://127.0.0.1:8080"), client.WithToken(os.Getenv("FOREBAY_TOKEN")))
	if err != nil {
		return err
	}
	defer c.Close()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()

	out, err := outbox.New()
	if err != nil {
		return err
	}
	in, err := inbox.New()
	if err != nil {
		return err
	}
	if err := errors.Join(out.Migrate(ctx, db), in.Migrate(ctx, db)); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS example_purchase (id bigserial PRIMARY KEY, customer text NOT NULL, total int NOT NULL);
		CREATE TABLE IF NOT EXISTS example_account (customer text PRIMARY KEY, spent int NOT NULL)`)
	if err != nil {
		return err
	}
	start := "earliest"
	topic, _, err := c.PutTopic(ctx, purchasesTopic, client.TopicSettings{}) // as it is, where it is there already
	if err != nil {
		return err
	}
	if _, _, err := c.PutSubscription(ctx, purchasesTopic, "accounts", client.SubscriptionSettings{Start: &start}); err != nil {
		return err
	}

	// The relay publishes what is in the outbox. It may run in any process, and in several.
	relay, err := outbox.NewRelay(out, db, c)
	if err != nil {
		return err
	}
	relaying, endRelay := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(relaying) }()
	err = errors.Join(buyAll(ctx, db, out), book(ctx, c, db, in, topic.TopicID))
	endRelay()
	if err := errors.Join(err, <-relayed); err != nil {
		return err
	}
	return show(ctx, db)
}

// buyAll makes six purchases of two customers. Those of a total of 13 are not to be.
func buyAll(ctx context.Context, db *sql.DB, out *outbox.Outbox) error {
	for i := range purchases {
		p := purchase{Customer: []string{"ann", "bob"}[i%2], Total: 10 * (i + 1)}
		if err := buy(ctx, db, out, p); err != nil {
			return err
		}
		if err := buy(ctx, db, out, purchase{Customer: "ann", Total: 13}); err == nil {
			return errors.New("13 was sold")
		}
	}
	return nil
}

// buy writes a purchase and its record in one transaction: both are there, or neither is.
func buy(ctx context.Context, db *sql.DB, out *outbox.Outbox, p purchase) error {
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // without effect after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO example_purchase (customer, total) VALUES ($1, $2)", p.Customer, p.Total); err != nil {
		return err
	}
	if _, err := out.Add(ctx, tx, purchasesTopic, client.Record{Key: []byte(p.Customer), Value: value, Kind: client.KindJSON}); err != nil {
		return err
	}
	if p.Total == 13 {
		return errors.New("not in stock")
	}
	return tx.Commit()
}

// book adds each purchase to its customer's account. The first delivery of each fails after its effect, as if the process had died before the ack.
func book(ctx context.Context, c *client.Client, db *sql.DB, in *inbox.Inbox, topicID string) error {
	var w *client.Worker
	booked := 0
	w, err := client.NewWorker(c, purchasesTopic, "accounts", func(ctx context.Context, m *client.Message) error {
		var p purchase
		if err := json.Unmarshal(m.Value, &p); err != nil {
			return err
		}
		_, err := in.Do(ctx, db, "accounts", inbox.RecordID(topicID, &m.Record), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO example_account VALUES ($1, $2)
				ON CONFLICT (customer) DO UPDATE SET spent = example_account.spent + EXCLUDED.spent`, p.Customer, p.Total)
			return err
		})
		switch {
		case err != nil:
			return err
		case m.Attempt == 1:
			return client.RetryAfter(errors.New("the process has died"), 0)
		}
		if booked++; booked == purchases {
			w.Stop()
		}
		return nil
	})
	if err != nil {
		return err
	}
	stats, err := w.Run(ctx)
	fmt.Printf("%d deliveries of %d purchases\n", stats.Leased, stats.Acked)
	return err
}

func show(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT customer, spent FROM example_account ORDER BY customer")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p purchase
		if err := rows.Scan(&p.Customer, &p.Total); err != nil {
			return err
		}
		fmt.Printf("%s has spent %d\n", p.Customer, p.Total)
	}
	return rows.Err()
}
