// Package overlay builds the simulation: it changes Go's runtime with text edits at build time, so that the order in
// which goroutines run is a function of a seed. No copy of Go's source is kept: the files are read from the installed
// GOROOT, and an edit that does not match exactly once is an error.
package overlay

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// An Edit replaces text that occurs exactly once in a file.
type Edit struct {
	File     string // relative to the root of its tree
	Old, New string
}

// runtimeFile is added to package runtime.
//
//go:embed runtime.go.txt
var runtimeFile []byte

// Runtime are the edits of the standard library. Their effects:
//   - the scheduler has no monitor thread, so that nothing depends on real time;
//   - a goroutine that becomes ready gets a place in the run queue that the seed chooses;
//   - the order of the cases of a select, and of timers of the same moment, comes from the seed;
//   - Lock and channel operations sometimes yield to another goroutine, as the seed says;
//   - map seeds, iteration order and the functions of math/rand come from the seed;
//   - a mutex never enters starvation mode, which depends on real time.
var Runtime = []Edit{
	{"runtime/proc.go", "const haveSysmon = GOARCH != \"wasm\"", "const haveSysmon = false"},
	{"runtime/proc.go", "\t\tpp.runq[t%uint32(len(pp.runq))].set(gp)\n\t\tatomic.StoreRel(&pp.runqtail, t+1) // store-release, makes the item available for consumption\n\t\treturn\n\t}\n\tif runqputslow",
		"\t\tpp.runq[t%uint32(len(pp.runq))].set(gp)\n\t\tatomic.StoreRel(&pp.runqtail, t+1)\n\t\tsimShuffle(pp, h, t)\n\t\treturn\n\t}\n\tif runqputslow"},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := simSelect(uint32(norder + 1))"},
	{"runtime/select.go", "\tgp := getg()\n\tif debugSelect {", "\tsimYield(block)\n\tgp := getg()\n\tif debugSelect {"},
	{"runtime/time.go", "\t\t\tt.rand = cheaprand()", "\t\t\tt.rand = simTimer()"},
	{"runtime/chan.go", "\tif debugChan {\n\t\tprint(\"chansend: chan=\", c, \"\\n\")", "\tsimYield(block)\n\tif debugChan {\n\t\tprint(\"chansend: chan=\", c, \"\\n\")"},
	{"runtime/chan.go", "\tif debugChan {\n\t\tprint(\"chanrecv: chan=\", c, \"\\n\")", "\tsimYield(block)\n\tif debugChan {\n\t\tprint(\"chanrecv: chan=\", c, \"\\n\")"},
	{"runtime/rand.go", "\tseed := &globalRand.seed\n", "\tstartupRand = nil\n\tseed := &globalRand.seed\n"},
	{"runtime/rand.go", "if readRandom(seed[:]) != len(seed) || allZero(seed[:]) {", "seed[0] = 1\n\t\tif allZero(seed[:]) {"},
	{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", "\tif x, ok := simRand(); ok {\n\t\treturn x\n\t}\n\tmp := getg().m\n\tc := &mp.chacha8\n"},
	{"runtime/rand.go", "func maps_rand() uint64 {\n", "func maps_rand() uint64 {\n\tif x, ok := simMapRand(); ok {\n\t\treturn x\n\t}\n"},
	{"runtime/rand.go", "func rand32() uint32 {\n", "func rand32() uint32 {\n\tif x, ok := simMapRand(); ok {\n\t\treturn uint32(x)\n\t}\n"},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1e18"},
	{"sync/mutex.go", "func (m *Mutex) Lock() {\n", "func (m *Mutex) Lock() {\n\tsimYield()\n"},
	{"sync/mutex.go", "// A Locker represents", "//go:linkname simYield runtime.simYieldLock\nfunc simYield()\n\n// A Locker represents"},
	{"sync/mutex.go", "import (\n", "import (\n\t_ \"unsafe\"\n"},
	// Events that happen only once per process, or after a garbage collection, must not consume the seed.
	{"sync/once.go", "\to.m.Lock()\n", "\to.m.mu.Lock()\n"},
	{"sync/pool.go", "\tallPoolsMu.Lock()\n", "\tallPoolsMu.mu.Lock()\n"},
}

// Product are the edits of this module: no process is started, which checking the read
// wall would require.
var Product = []Edit{
	{"engine/sandbox/wall.go", "w.err = w.try()", "w.err = ErrNoWall"},
}

// Write writes an overlay for go build into dir and returns its file. root is that of this
// module. With planted, the build contains the bugs of [Planted].
func Write(dir, goroot, root string, planted bool) (string, error) {
	replace := map[string]string{}
	texts := map[string]string{}
	apply := func(tree string, edits []Edit) error {
		for _, e := range edits {
			path := filepath.Join(tree, filepath.FromSlash(e.File))
			text, ok := texts[path]
			if !ok {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text = string(data)
			}
			if n := strings.Count(text, e.Old); n != 1 {
				return fmt.Errorf("overlay: %s: the text to replace is there %d times, want 1:\n%s", e.File, n, e.Old)
			}
			texts[path] = strings.Replace(text, e.Old, e.New, 1)
		}
		return nil
	}
	write := func(path string, text []byte) error {
		file := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		replace[path] = file
		return os.WriteFile(file, text, 0o666)
	}
	if err := apply(filepath.Join(goroot, "src"), Runtime); err != nil {
		return "", err
	}
	if err := write(filepath.Join(goroot, "src/runtime/zsim.go"), runtimeFile); err != nil {
		return "", err
	}
	if err := apply(root, Product); err != nil {
		return "", err
	}
	if planted {
		if err := plant(root, func(edits []Edit) error { return apply(root, edits) }, write); err != nil {
			return "", err
		}
	}
	for path, text := range texts {
		if err := write(path, []byte(text)); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, data, 0o666)
}

// bugWord finds the words of planted bugs.
var bugWord = regexp.MustCompile(`\b(BUG|OK)\b`)

// expand inserts the conditions of a planted bug.
func expand(text, name string) string {
	return bugWord.ReplaceAllStringFunc(text, func(word string) string {
		if word == "BUG" {
			return fmt.Sprintf("plantedBug == %q", name)
		}
		return fmt.Sprintf("plantedBug != %q", name)
	})
}
