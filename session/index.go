package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// indexMin is the minimum position of the last compaction in a log for an index to be
// worth it.
const indexMin = 256 << 10

// An index holds what is needed from the part of a log before its last compaction to
// resume it, so that only the rest has to be read. It is a file beside the log, and
// contains nothing that the log does not: if it is missing or does not match, the whole
// log is read and the index is written again.
type index struct {
	Version  int                 `json:"version"`
	Boundary int64               `json:"boundary"` // position of the compaction
	Sum      string              `json:"sum"`      // checksum of the bytes around it
	Loose    map[string]jsonSpan `json:"loose"`    // the last record of each type before it
	Kept     []jsonSpan          `json:"kept"`     // the earlier messages that the compaction kept
	Corrupt  int                 `json:"corrupt"`
}

// A jsonSpan is a span in JSON.
type jsonSpan struct {
	Off int64 `json:"off"`
	Len int   `json:"len"`
}

// below reports whether a span ends before a position. A sum could overflow.
func (s jsonSpan) below(end int64) bool {
	return s.Off >= 0 && s.Len > 0 && s.Off <= end && int64(s.Len) <= end-s.Off
}

func indexName(p place) string { return path.Join(p.project, p.id, "index.json") }

// boundarySum returns the checksum with which an index identifies its log.
func boundarySum(r io.ReaderAt, at int64) string {
	buf := make([]byte, 4<<10)
	n, _ := r.ReadAt(buf, max(0, at-2<<10))
	sum := sha256.Sum256(buf[:min(n, 2<<10+256)])
	return hex.EncodeToString(sum[:])
}

// readIndex returns the index of a log, or nil if there is none that matches.
func readIndex(root *os.Root, p place, r io.ReaderAt, size int64) *index {
	file, err := openRead(root, indexName(p))
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4<<20))
	var x index
	if err != nil || json.Unmarshal(text, &x) != nil || x.Version != 1 || x.Boundary <= 0 || x.Boundary >= size || x.Sum != boundarySum(r, x.Boundary) {
		return nil
	}
	for _, s := range x.Loose {
		if !s.below(x.Boundary) {
			return nil
		}
	}
	for _, s := range x.Kept {
		if !s.below(x.Boundary) {
			return nil
		}
	}
	return &x
}

// writeIndex stores the result of a scan. Failures are ignored.
func (f *Files) writeIndex(root *os.Root, p place, s *scan, live []*node, r io.ReaderAt) {
	if len(live) == 0 || !live[0].boundary || live[0].off < indexMin || live[0].off == s.from {
		return
	}
	at := live[0].off
	x := index{Version: 1, Boundary: at, Sum: boundarySum(r, at), Loose: map[string]jsonSpan{}}
	for typ, l := range s.loose {
		if l.off < at {
			x.Loose[typ] = jsonSpan{l.off, l.len}
		}
	}
	for _, n := range live {
		if n.off < at {
			x.Kept = append(x.Kept, jsonSpan{n.off, n.len})
		}
	}
	for _, off := range s.corruptAt {
		if off < at {
			x.Corrupt++
		}
	}
	text, err := json.Marshal(x)
	if err != nil || root.MkdirAll(path.Join(p.project, p.id), dirMode) != nil {
		return
	}
	f.replace(root, indexName(p), text)
}

// scanFrom reads a log starting at its last compaction.
func scanFrom(file io.ReaderAt, size int64, x *index) (*scan, int64, error) {
	s := newScan()
	s.from, s.corrupt = x.Boundary, x.Corrupt
	for range x.Corrupt {
		s.corruptAt = append(s.corruptAt, 0)
	}
	for typ, l := range x.Loose {
		s.loose[typ] = span{l.Off, l.Len}
	}
	r := &lineReader{r: file}
	d := jsontext.NewDecoder(new(bytes.Buffer), lenient...)
	kept := slices.Clone(x.Kept)
	slices.SortStableFunc(kept, func(a, b jsonSpan) int { return int(a.Off - b.Off) })
	for _, k := range kept {
		line, err := r.read(span{k.Off, k.Len})
		if err != nil {
			return nil, 0, err
		}
		h, err := headOf(d, line)
		if err != nil {
			return nil, 0, err
		}
		s.addRecord(h, span{k.Off, k.Len})
	}
	s.kept = len(s.nodes)
	end, err := s.read(file, x.Boundary, size, nil)
	return s, end, err
}

// loadHistory reads a locked file, removes what its last writer did not finish, and
// returns its history. Of a long log that was compacted only the end is read.
func (f *Files) loadHistory(root *os.Root, p place, file *os.File) (h *History, err error) {
	for err = errGrew; errors.Is(err, errGrew); {
		h, err = f.readHistory(root, p, file)
	}
	return h, err
}

func (f *Files) readHistory(root *os.Root, p place, file *os.File) (*History, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if x := readIndex(root, p, file, size); x != nil {
		s, end, err := scanFrom(file, size, x)
		if err == nil {
			if h, path, ok := s.tail(file); ok {
				torn, err := repairEnd(s, file, f.pathOf(p), size, end)
				if err != nil {
					return nil, err
				}
				h.Torn = torn
				f.writeIndex(root, p, s, path, file)
				return h, nil
			}
		}
	}
	s := newScan()
	end, err := s.read(file, 0, size, f.progressFunc(size))
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	torn, err := repairEnd(s, file, f.pathOf(p), size, end)
	if err != nil {
		return nil, err
	}
	h, path, err := s.historyPath(file)
	if err != nil {
		return nil, err
	}
	h.Torn = torn
	f.writeIndex(root, p, s, path, file)
	return h, nil
}

// tail returns the conversation of a log of which only the end was read, if the
// conversation is complete.
func (s *scan) tail(file io.ReaderAt) (*History, []*node, bool) {
	leaf, end := s.leaf(func(n *node) bool { return !n.sidechain && !n.team && n.off >= s.from })
	if leaf == nil || !slices.ContainsFunc(s.up(end), func(n *node) bool { return n.boundary && n.off >= s.from }) {
		return nil, nil, false // it continued from before the compaction
	}
	h, path, err := s.historyPath(file)
	if err != nil || s.missing || s.kept > 0 && len(h.Orphans()) > 0 {
		return nil, nil, false
	}
	return h, path, true
}

// progressMin is the minimum size of a log for which [Files.Progress] is called.
const progressMin = 32 << 20

// progress returns a reader that reports its progress to [Files.Progress], if the input
// is long.
func (f *Files) progress(r io.Reader, total int64) io.Reader {
	if f.Progress == nil || total < progressMin {
		return r
	}
	return &progressReader{r: r, report: f.progressFunc(total)}
}

// progressFunc returns a function that reports a position to [Files.Progress] if the input is
// long, twenty times in total.
func (f *Files) progressFunc(total int64) func(done int64) {
	if f.Progress == nil || total < progressMin {
		return nil
	}
	last := int64(0)
	return func(done int64) {
		if done-last >= total/20 || done == total && last < done {
			last = done
			f.Progress(done, total)
		}
	}
}

// A progressReader reports its progress.
type progressReader struct {
	r      io.Reader
	done   int64
	report func(done int64)
}

func (r *progressReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.done += int64(n)
	r.report(r.done)
	return n, err
}
