package mem_test

import (
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return mem.New(mem.Options{}) }, storetest.Options{})
}
