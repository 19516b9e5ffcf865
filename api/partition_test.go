package api

import "testing"

// The hashes are those that Apache Kafka's own tests publish for its murmur2: mixed clients must agree.
func TestMurmur2AgreesWithKafka(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestPartitionForKeyStaysInside(t *testing.T) {
	seen := map[int]bool{}
	for i := range 10_000 {
		p := PartitionForKey([]byte{byte(i), byte(i >> 8)}, 24)
		if p < 0 || p >= 24 {
			t.Fatalf("partition %d of 24", p)
		}
		seen[p] = true
	}
	if len(seen) != 24 {
		t.Errorf("only %d of 24 partitions are used", len(seen))
	}
	if a, b := PartitionForKey(nil, 7), PartitionForKey([]byte{}, 7); a != b {
		t.Errorf("an empty key and no bytes differ: %d, %d", a, b)
	}
}
