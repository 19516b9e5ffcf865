package segment

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docTable is a table of the document: its rows, each a list of cells.
type docTable [][]string

// document reads the tables of docs/segment-format.md by the heading above them, in order.
func document(t *testing.T) map[string][]docTable {
	t.Helper()
	b, err := os.ReadFile("../docs/segment-format.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]docTable{}
	heading, in, fenced := "", false, false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, in = !fenced, false
		case fenced:
		case strings.HasPrefix(line, "#"):
			heading, in = strings.TrimSpace(strings.TrimLeft(line, "#")), false
		case !strings.HasPrefix(line, "|"):
			in = false
		default:
			var cells []string
			for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(c))
			}
			if !in {
				out[heading] = append(out[heading], nil)
				in = true
			}
			last := len(out[heading]) - 1
			out[heading][last] = append(out[heading][last], cells)
		}
	}
	for h := range out {
		for i := range out[h] {
			out[h][i] = out[h][i][2:] // without the head and the rule below it
		}
	}
	return out
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatalf("not a number in the document: %q", s)
	}
	return int(n)
}

// checkLayout compares a table of offset, size and field with constants, and sees that the fields follow each other without a gap.
func checkLayout(t *testing.T, name string, tables []docTable, start, size int, want []int) {
	t.Helper()
	var offsets []int
	next := start
	for _, table := range tables {
		for _, row := range table {
			at, n := number(t, row[0]), number(t, row[1])
			if at != next {
				t.Errorf("%s: %q is at %d, but the field before it ends at %d", name, row[2], at, next)
			}
			next = at + n
			offsets = append(offsets, at)
		}
	}
	if next != size {
		t.Errorf("%s: the document ends at %d, the constant is %d", name, next, size)
	}
	if len(offsets) != len(want) {
		t.Fatalf("%s: %d fields in the document, %d in the code", name, len(offsets), len(want))
	}
	for i := range want {
		if offsets[i] != want[i] {
			t.Errorf("%s: field %d is at %d in the document, at %d in the code", name, i, offsets[i], want[i])
		}
	}
}

func checkValues(t *testing.T, name string, table docTable, want map[string]int) {
	t.Helper()
	if len(table) != len(want) {
		t.Errorf("%s: %d rows in the document, %d in the code", name, len(table), len(want))
	}
	for _, row := range table {
		if v, ok := want[row[0]]; !ok || v != number(t, row[1]) {
			t.Errorf("%s: %s is %s in the document, %d in the code (known: %v)", name, row[0], row[1], v, ok)
		}
	}
}

func TestDocumentMatchesConstants(t *testing.T) {
	doc := document(t)
	checkLayout(t, "header", doc["Header"], 0, HeaderSize,
		[]int{0, headerVersion, headerLevel, headerReserved, headerID, headerCreated, headerReserve2, headerCRC})
	checkLayout(t, "batch", doc["Batch"][:1], 0, BatchHeaderSize,
		[]int{0, batchCRC, batchVersion, batchCodec, batchFlags, batchStored, batchRaw, batchRecords, batchTopic, batchPartition, batchProducer,
			batchReserved, batchEpoch, batchSequence, batchFirstOffset, batchFirstTime})
	checkLayout(t, "index", doc["Index"], 0, IndexEntrySize+IndexSparseSize,
		[]int{indexTopic, indexPartition, indexRecords, indexPos, indexLen, indexRaw, indexFlags, indexReserved, indexFirstOffset, indexLastOffset,
			indexFirstTime, indexLastTime})
	checkLayout(t, "footer", doc["Footer"], 0, FooterSize,
		[]int{footerID, footerCreated, footerIndexPos, footerIndexLen, footerIndexCRC, footerBatches, footerReserved, footerLevel, footerReserve2,
			footerCRC, footerMagicAt, footerVersion})
	checkValues(t, "batch flags", doc["Batch"][1], map[string]int{"FlagSparse": FlagSparse, "FlagProducer": FlagProducer})
	checkValues(t, "codecs", doc["Batch"][2], map[string]int{"CodecRaw": int(CodecRaw), "CodecZstd": int(CodecZstd)})
	flags := map[string]int{"recordKey": recordKey, "recordKeyBinary": recordKeyBinary, "recordValue": recordValue, "recordHeaders": recordHeaders,
		"recordProducerTime": recordProducerTime, "recordDeliverAt": recordDeliverAt, "recordID": recordID}
	checkValues(t, "record flags", doc["Record"][1], flags)
	all := recordKindMask << recordKindShift
	for _, f := range flags {
		all |= f
	}
	if all != recordKnownFlags {
		t.Errorf("the flags of the document make %#x, the code knows %#x", all, recordKnownFlags)
	}
	checkValues(t, "kinds", doc["Record"][2], map[string]int{"KindNone": int(KindNone), "KindData": int(KindData), "KindText": int(KindText), "KindJSON": int(KindJSON)})
	checkValues(t, "limits", doc["Limits"][0], map[string]int{"MaxPayloadBytes": MaxPayloadBytes, "MaxBatchRecords": MaxBatchRecords,
		"MaxProducerBytes": MaxProducerBytes, "MaxBatches": MaxBatches})
}

func TestDocumentMatchesMagicsAndSizes(t *testing.T) {
	b, err := os.ReadFile("../docs/segment-format.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, magic := range []string{headerMagic, batchMagic, footerMagic} {
		if !strings.Contains(text, "magic, `"+strings.ReplaceAll(magic, "\n", `\n`)+"`") {
			t.Errorf("magic %q is not in the document", magic)
		}
	}
	if !strings.Contains(text, "# The segment format, version "+strconv.Itoa(Version)+"\n") {
		t.Errorf("the document is not about version %d", Version)
	}
	var sizes []int
	for _, m := range regexp.MustCompile(`(?m)^Size: (\d+) bytes`).FindAllStringSubmatch(text, -1) {
		sizes = append(sizes, number(t, m[1]))
	}
	want := []int{HeaderSize, BatchHeaderSize, IndexEntrySize, FooterSize}
	if len(sizes) != len(want) {
		t.Fatalf("sizes in the document: %v, want %v", sizes, want)
	}
	for i := range want {
		if sizes[i] != want[i] {
			t.Errorf("size %d is %d in the document, %d in the code", i, sizes[i], want[i])
		}
	}
	if key := (Name{}).Key(); !strings.Contains(text, "`"+key+"`") {
		t.Errorf("the example of a name should be %s", key)
	}
}
