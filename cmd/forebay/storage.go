package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/internal/node"
)

type storageCmd struct {
	Report storageReportCmd `cmd:"" help:"Print bytes, objects and monthly cost of each topic and level, and what reads have cost."`
}

// storageReportCmd asks a running node, or reads the metadata itself.
type storageReportCmd struct {
	Ops         string        `help:"Port for operators of a running node; used unless --object-store and --etcd are given." default:"http://127.0.0.1:8081" placeholder:"URL"`
	ObjectStore string        `help:"Object store of the fabric, to read its metadata directly." placeholder:"URL"`
	Etcd        []string      `help:"Members of the etcd quorum, to read its metadata directly." placeholder:"HOST:PORT"`
	EtcdPrefix  string        `help:"Prefix of all keys in etcd." placeholder:"PREFIX"`
	Region      string        `help:"Region of the fabric." placeholder:"NAME"`
	PriceGB     float64       `name:"price-gb-month" help:"Price of 10^9 bytes stored for a month." default:"0.023"`
	PricePuts   float64       `name:"price-1000-puts" help:"Price of 1,000 PUT, LIST requests." default:"0.005"`
	PriceGets   float64       `name:"price-1000-gets" help:"Price of 1,000 GET requests." default:"0.0004"`
	Currency    string        `help:"Shown with amounts." default:"USD"`
	Output      string        `help:"text or json." enum:"text,json" default:"text"`
	Timeout     time.Duration `help:"How long to wait." default:"30s"`
}

// storageReport is the report with amounts of money.
type storageReport struct {
	*node.StorageReport
	Currency string              `json:"currency"`
	Prices   compactor.Prices    `json:"prices"`
	Costs    []compactor.Cost    `json:"topicCosts"` // a month, in the order of topics
	Total    compactor.TotalCost `json:"totalCost"`
}

func (c *storageReportCmd) Run(ctx context.Context, e *env) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no report within %s", c.Timeout))
	defer cancel()
	if (c.ObjectStore == "") != (len(c.Etcd) == 0) {
		return usagef("--object-store and --etcd belong together")
	}
	if c.PriceGB < 0 || c.PricePuts < 0 || c.PriceGets < 0 {
		return usagef("prices must not be negative")
	}
	r, err := c.get(ctx, e)
	if err != nil {
		return err
	}
	out := storageReport{StorageReport: r, Currency: c.Currency, Prices: compactor.Prices{GBMonth: c.PriceGB, Puts1000: c.PricePuts, Gets1000: c.PriceGets}}
	out.Costs, out.Total = r.Price(out.Prices)
	if c.Output == "json" {
		return printJSON(e.out, out)
	}
	return printReport(e.out, &out)
}

func (c *storageReportCmd) get(ctx context.Context, e *env) (*node.StorageReport, error) {
	if c.ObjectStore != "" {
		s, err := node.OpenStorage(ctx, node.Config{
			ObjectStore: c.ObjectStore, Region: c.Region, Etcd: node.Etcd{Endpoints: c.Etcd, Prefix: c.EtcdPrefix}, Housekeep: node.Housekeeping{Off: true},
			Compaction: node.Compaction{Off: true}, Logger: (&nodeFlags{LogLevel: slog.LevelWarn}).logger(e.err),
		})
		if err != nil {
			return nil, err
		}
		return &node.StorageReport{Report: s.Compactor.Report()}, s.Close()
	}
	u, err := url.Parse(c.Ops)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("--ops %q is not an http:// or https:// URL", c.Ops)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("/debug/storage").String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("ask the node: %s: %s", res.Status, text), err)
	}
	r := &node.StorageReport{}
	if err := json.NewDecoder(res.Body).Decode(r); err != nil {
		return nil, fmt.Errorf("read the node's report: %w", err)
	}
	return r, nil
}

func printReport(w io.Writer, r *storageReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) {
		for _, c := range cells {
			fmt.Fprint(t, c, "\t")
		}
		fmt.Fprintln(t)
	}
	ratio := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	money := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	row("TENANT", "TOPIC", "CLASS", "LEVEL", "RECORDS", "BYTES", "OBJECTS", "ENTRIES", r.Currency+"/MONTH")
	for i, x := range r.Topics {
		row(x.Tenant, x.Topic, x.Class, "all", x.Records, x.Bytes, "", x.Batches, money(r.Costs[i].Storage))
		for _, l := range x.Levels {
			row("", "", "", l.Level, "", l.Bytes, l.Objects, l.Batches, "")
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	row("CLASS", "LEVEL", "OBJECTS", "BYTES", "LIVE")
	for _, l := range r.Levels {
		row(l.Class, l.Level, l.Objects, l.Bytes, l.Live)
	}
	row("", "all", r.Objects, r.Bytes, r.Live)
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Reads) > 0 {
		fmt.Fprintln(w, "\nReads served by this node since it started:")
		row("LEVEL", "GETS", "BYTES READ", "BYTES DELIVERED", "GETS/GIB")
		var sum fetch.LevelReads
		for _, l := range r.Reads {
			row(l.Level, l.Gets, l.GetBytes, l.Delivered, ratio(l.GetsPerGiB))
			sum.Add(l.LevelReads)
		}
		row("all", sum.Gets, sum.GetBytes, sum.Delivered, ratio(sum.GetsPerGiB()))
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nStorage of live objects: %s %s a month. One full read of everything: %d GETs, %s %s.\n",
		money(r.Total.Storage), r.Currency, r.Total.Gets, money(r.Total.Read), r.Currency)
	return err
}
