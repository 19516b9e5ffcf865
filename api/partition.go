package api

// PartitionForKey maps a key to a partition as Kafka's default partitioner does: murmur2(key) with the sign bit cleared, modulo the
// number of partitions, so that mixed clients agree. partitions must be positive.
//
// Source of the hash: Austin Appleby's MurmurHash2 (32 bit, seed 0x9747b28c), as fixed by Apache Kafka's DefaultPartitioner.
func PartitionForKey(key []byte, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

func murmur2(data []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
