package node

import (
	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/fetch"
)

// StorageReport is what /debug/storage answers: what is stored, and what reading it has cost this node since it started.
type StorageReport struct {
	*compactor.Report
	Reads []LevelReads `json:"reads,omitempty"` // by level; none where no records are served
}

// LevelReads are the reads of one level.
type LevelReads struct {
	fetch.LevelReads
	GetsPerGiB float64 `json:"getsPerGiB"` // GETs for a GiB of records delivered
}

// storageReport makes the report of a node.
func (n *Node) storageReport() *StorageReport {
	r := &StorageReport{Report: n.parts.compact.Report()}
	for _, l := range n.parts.fetch.Reads() {
		r.Reads = append(r.Reads, LevelReads{l, l.GetsPerGiB()})
	}
	return r
}
