// Package overlay builds the simulation: it changes Go's runtime with text edits at build time, so that the order in
// which goroutines run is a function of a seed. No copy of Go's source is kept: the files are read from the installed
// GOROOT, and an edit that does not match exactly once is an error.
package overlay

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
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
//   - Lock and channel operations sometimes yield to another goroutine, or take some milliseconds of virtual time, as the seed determines;
//   - map seeds, iteration order and the functions of math/rand come from the seed;
//   - a mutex never enters starvation mode, which depends on real time;
//   - a sync.Pool returns what the same run put in last, and nothing from an earlier run, whose buffers can have other sizes.
var Runtime = []Edit{
	{"runtime/proc.go", "const haveSysmon = GOARCH != \"wasm\"", "const haveSysmon = false"},
	{"runtime/proc.go", "\t\tpp.runq[t%uint32(len(pp.runq))].set(gp)\n\t\tatomic.StoreRel(&pp.runqtail, t+1) // store-release, makes the item available for consumption\n\t\treturn\n\t}\n\tif runqputslow",
		"\t\tpp.runq[t%uint32(len(pp.runq))].set(gp)\n\t\tatomic.StoreRel(&pp.runqtail, t+1)\n\t\tsimShuffle(pp, h, t)\n\t\treturn\n\t}\n\tif runqputslow"},
	{"runtime/proc.go", "\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)\n\t\tunlock(&sched.lock)\n\t}\n\n\tif mainStarted {", "\t} else if sim.on && gp.bubble != nil {\n\t\trunqput(pp, gp, false)\n\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)\n\t\tunlock(&sched.lock)\n\t}\n\n\tif mainStarted {"},
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
	// A goroutine that waits for a lock lets virtual time pass, because the one that holds it may do so.
	{"runtime/runtime2.go", "\twaitReasonSyncCondWait:          true,\n", "\twaitReasonSyncCondWait:          true,\n\twaitReasonSyncMutexLock:         true,\n\twaitReasonSyncRWMutexRLock:      true,\n\twaitReasonSyncRWMutexLock:       true,\n"},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1e18"},
	{"sync/mutex.go", "func (m *Mutex) Lock() {\n", "func (m *Mutex) Lock() {\n\tsimYield()\n"},
	{"sync/mutex.go", "// A Locker represents", "//go:linkname simYield runtime.simYieldLock\nfunc simYield()\n\n// A Locker represents"},
	{"sync/mutex.go", "import (\n", "import (\n\t_ \"unsafe\"\n"},
	// Events that happen only once per process, or after a garbage collection, must not consume the seed.
	{"sync/once.go", "\to.m.Lock()\n", "\to.m.mu.Lock()\n"},
	{"sync/pool.go", "\tallPoolsMu.Lock()\n", "\tallPoolsMu.mu.Lock()\n"},
	{"sync/pool.go", "\tNew func() any\n", "\tNew func() any\n\n\tsimRun uint64\n\tsimItems []any\n"},
	{"sync/pool.go", "func (p *Pool) Put(x any) {\n", "func (p *Pool) Put(x any) {\n\tif p.simBegin() {\n\t\tif x != nil {\n\t\t\tp.simItems = append(p.simItems, x)\n\t\t}\n\t\treturn\n\t}\n"},
	{"sync/pool.go", "func (p *Pool) Get() any {\n", "func (p *Pool) Get() any {\n\tif p.simBegin() {\n\t\tif n := len(p.simItems) - 1; n >= 0 {\n\t\t\tx := p.simItems[n]\n\t\t\tp.simItems[n] = nil\n\t\t\tp.simItems = p.simItems[:n]\n\t\t\treturn x\n\t\t}\n\t\tif p.New != nil {\n\t\t\treturn p.New()\n\t\t}\n\t\treturn nil\n\t}\n"},
	{"sync/pool.go", "// Put adds x to the pool.\n", "//go:linkname simRun runtime.simRun\nfunc simRun() uint64\n\n// simBegin drops the items of an earlier run. It reports whether a run uses the pool.\nfunc (p *Pool) simBegin() bool {\n\trun := simRun()\n\tif run != 0 && run != p.simRun {\n\t\tclear(p.simItems)\n\t\tp.simRun, p.simItems = run, p.simItems[:0]\n\t}\n\treturn run != 0\n}\n\n// Put adds x to the pool.\n"},
	{"unique/canonmap.go", "\t\"sync\"\n", "\t\"internal/sync\"\n"},
	// Children of a context are cancelled in the order in which they were added, not in that of their addresses.
	{"context/context.go", "children map[canceler]struct{} //", "children map[canceler]int //"},
	{"context/context.go", "p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]int)"},
	{"context/context.go", "\t\t\tp.children[child] = struct{}{}\n", "\t\t\tp.added++\n\t\t\tp.children[child] = p.added\n"},
	{"context/context.go", "\n\tcause    error ", "\n\tadded    int\n\tcause    error "},
	{"context/context.go", "\tfor child := range c.children {\n", "\tordered := make([]canceler, c.added+1)\n\tfor child, n := range c.children {\n\t\tordered[n] = child\n\t}\n\tfor _, child := range ordered {\n\t\tif child == nil {\n\t\t\tcontinue\n\t\t}\n"},
}

// Product are the edits of this module: no process is started, which checking the read
// wall would require, and messages have the same length in all processes.
var Product = []Edit{
	{"agent/control.go", "os.Getpid()", "min(1, os.Getpid())"},
	{"engine/sandbox/wall.go", "w.err = w.try()", "w.err = ErrNoWall"},
}

// Write writes an overlay for go build into dir and returns its file. root is that of this
// module. With planted, the build contains the bugs of [Planted]. Files are named for their
// contents, so that different overlays can share dir, and go build can reuse what it compiled.
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
	keep := func(base string, text []byte) (string, error) {
		file := filepath.Join(dir, fmt.Sprintf("%x_%s", sha256.Sum256(text), base))
		temp, err := os.CreateTemp(dir, "new")
		if err != nil {
			return "", err
		}
		defer os.Remove(temp.Name())
		_, err = temp.Write(text)
		return file, errors.Join(err, temp.Close(), os.Rename(temp.Name(), file))
	}
	write := func(path string, text []byte) (err error) {
		replace[path], err = keep(filepath.Base(path), text)
		return err
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
	return keep("overlay.json", data)
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
