// Command mutate changes a package in one place at a time and runs the package's own tests: a mutant that
// they do not notice shows a missing test.
//
//	go run ./internal/mutate -n 20 -seed 1 ./wire ./hub
//	go run ./internal/mutate -at lines.go:89 ./wire
//	go run ./internal/mutate ./engine/policy+./engine/policy/policytest
//
// The seed selects the places. No file is changed: one build overlay contains all mutants of a package, and a
// variable of the environment selects one, so that a package is compiled once. A mutant runs the tests that reach
// its place, the fastest first. Packages behind a plus have tests of the first one, too.
//
// The output names each surviving mutant, and the rate of killed ones. A mutant that does not compile does not
// count; one whose tests exceed the time limit counts as killed.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	count   = flag.Int("n", 20, "how many mutants of each package")
	seed    = flag.Uint64("seed", 1, "which")
	at      = flag.String("at", "", "all mutants of this place, file.go or file.go:line, instead of some that the seed selects")
	limit   = flag.Duration("timeout", 30*time.Second, "how much longer than without a mutant its tests may take")
	workers = flag.Int("workers", 2, "how many mutants run at the same time: one that hangs needs no processor")
	all     = flag.Bool("v", false, "print killed mutants, too")
)

func main() {
	flag.Parse()
	dir, err := os.MkdirTemp("", "mutate")
	if err == nil {
		err = run(dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	killed, tried := 0, 0
	for i, arg := range flag.Args() {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		k, n, err := mutatePackage(sub, strings.Split(arg, "+"))
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		fmt.Printf("%s: %d of %d mutants killed\n", arg, k, n)
		killed, tried = killed+k, tried+n
	}
	fmt.Printf("%d of %d mutants killed (%.0f %%), seed %d\n", killed, tried, 100*float64(killed)/float64(max(1, tried)), *seed)
	return nil
}

// mutatePackage tries mutants of the first package with the tests of all.
func mutatePackage(dir string, pkgs []string) (killed, tried int, err error) {
	p, err := load(pkgs[0])
	if err != nil {
		return 0, 0, err
	}
	places := p.choose()
	var suites []*suite
	for {
		failed, err := build(dir, pkgs, p, places, &suites)
		if err != nil {
			return 0, 0, err
		}
		if len(failed) == 0 {
			break
		}
		places = slices.DeleteFunc(places, func(pl *place) bool { return failed[fmt.Sprintf("%s:%d", filepath.Base(pl.pos.Filename), pl.pos.Line)] })
	}
	if len(places) > *count && *at == "" {
		places = places[:*count]
	}
	if err := survey(dir, suites); err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	next := make(chan *place)
	for range *workers {
		work.Go(func() {
			for pl := range next {
				how := try(pl, suites)
				mu.Lock()
				if tried++; how.killed {
					killed++
				}
				if !how.killed || *all {
					report(fmt.Sprintf("%s: %s:%d: %s", how.what, filepath.Base(pl.pos.Filename), pl.pos.Line, pl.what))
				}
				mu.Unlock()
			}
		})
	}
	for _, pl := range places {
		next <- pl
	}
	close(next)
	work.Wait()
	return killed, tried, nil
}

// choose returns the places that the flags select: a few more than needed, because some do not compile.
func (p *loaded) choose() (chosen []*place) {
	if *at != "" {
		for _, pl := range p.places {
			if name := filepath.Base(pl.pos.Filename); *at == name || *at == fmt.Sprintf("%s:%d", name, pl.pos.Line) {
				chosen = append(chosen, pl)
			}
		}
	} else {
		for _, i := range rand.New(rand.NewPCG(*seed, 1)).Perm(len(p.places))[:min(len(p.places), *count+*count/10+1)] {
			chosen = append(chosen, p.places[i])
		}
	}
	for i, pl := range chosen {
		pl.n = i + 1
	}
	return chosen
}

// helpers are the functions that the mutants call.
//
//go:embed helpers.go.txt
var helpers string

// errorAt finds the places of the compiler's errors.
var errorAt = regexp.MustCompile(`(?m)^(?:vet: )?(?:\S*/)?([^/\s:]+\.go:\d+):\d+: `)

// build builds the tests with all mutants, or returns the lines that do not compile.
func build(dir string, pkgs []string, p *loaded, places []*place, suites *[]*suite) (failed map[string]bool, err error) {
	replace := map[string]string{}
	put := func(path string, text []byte) error {
		file := filepath.Join(dir, filepath.Base(path))
		replace[path] = file
		return os.WriteFile(file, text, 0o600)
	}
	for path, text := range p.mutated(places) {
		if err := put(path, text); err != nil {
			return nil, err
		}
	}
	if err := put(filepath.Join(p.dir, "zmutant.go"), []byte("package "+p.name+helpers)); err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return nil, err
	}
	*suites = nil
	for i, pkg := range pkgs {
		where, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w", pkg, err)
		}
		s := &suite{dir: strings.TrimSpace(string(where)), binary: filepath.Join(dir, fmt.Sprintf("%d.test", i))}
		if out, err := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", overlay, "-o", s.binary, pkg).CombinedOutput(); err != nil {
			failed = map[string]bool{}
			for _, m := range errorAt.FindAllSubmatch(out, -1) {
				failed[string(m[1])] = true
			}
			if !slices.ContainsFunc(places, func(pl *place) bool { return failed[fmt.Sprintf("%s:%d", filepath.Base(pl.pos.Filename), pl.pos.Line)] }) {
				return nil, fmt.Errorf("build: %w\n%s", err, out)
			}
			return failed, nil
		}
		*suites = append(*suites, s)
	}
	return nil, nil
}

// A suite is the tests of one package, as a program.
type suite struct {
	dir, binary string
	tests       []*test
}

// A test is one test function, and the mutants whose places it reaches.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// survey runs each test alone and without a mutant, to see how long it takes and what it reaches.
func survey(dir string, suites []*suite) error {
	for _, s := range suites {
		names, err := s.command("-test.list", "^(Test|Example|Fuzz)").Output()
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(string(names)) {
			file := filepath.Join(dir, "reached")
			cmd := s.command("-test.short", "-test.run", "^"+name+"$")
			cmd.Env = append(os.Environ(), "MUTANT_REACHED="+file)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Printf("left out, fails without a mutant: %s: %v\n%s\n", name, err, out[max(0, len(out)-500):])
				os.Remove(file)
				continue
			}
			t := &test{name: name, took: time.Since(began), reaches: map[int]bool{}}
			data, err := os.ReadFile(file)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			os.Remove(file)
			for n := range strings.FieldsSeq(string(data)) {
				i, _ := strconv.Atoi(n)
				t.reaches[i] = true
			}
			s.tests = append(s.tests, t)
		}
		slices.SortFunc(s.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	}
	return nil
}

func (s *suite) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	return cmd
}

// report prints what became of a mutant.
var report = func(line string) { fmt.Println(line) }

type verdict struct {
	killed bool
	what   string
}

// try runs the tests that reach a mutant, first the quick ones.
func try(pl *place, suites []*suite) verdict {
	reached := 0
	for _, s := range suites {
		var quick, slow []string
		var took time.Duration
		for _, t := range s.tests {
			if !t.reaches[pl.n] {
				continue
			}
			if reached++; t.took < time.Second {
				quick = append(quick, t.name)
			} else {
				slow = append(slow, t.name)
			}
			took += t.took
		}
		for _, names := range [][]string{quick, slow} {
			if len(names) == 0 {
				continue
			}
			cmd := s.command("-test.short", "-test.failfast", "-test.timeout", (2*took + *limit).String(), "-test.run", "^("+strings.Join(names, "|")+")$")
			cmd.Env = append(os.Environ(), fmt.Sprint("MUTANT=", pl.n))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.WaitDelay = time.Second // programs that a test started may outlive it
			if err := cmd.Run(); err != nil {
				if bytes.Contains(out.Bytes(), []byte("panic: test timed out")) {
					return verdict{true, "killed, by the time limit"}
				}
				return verdict{true, "killed"}
			}
		}
	}
	if reached == 0 {
		return verdict{false, "survived, not reached"}
	}
	return verdict{false, "survived"}
}
