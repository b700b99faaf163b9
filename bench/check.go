package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// counts is the file with the instruction counts of the hot paths.
var counts = filepath.Join("bench", "instructions.txt")

// tolerance is the factor by which a count may grow; PARLEY_BENCH_PERCENT allows another one. Counts
// differ by about one percent from run to run, because of the garbage collector and the scheduler.
var tolerance = 1 + readPercent(os.Getenv("PARLEY_BENCH_PERCENT"))/100

func readPercent(text string) float64 {
	if v, err := strconv.ParseFloat(text, 64); err == nil && v > 0 {
		return v
	}
	return 3
}

// checkInstructions counts the instructions of the hot paths with valgrind, and
// compares them with those in a file. With update it writes the file.
func checkInstructions(hot, file string, update bool) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return errors.New("there is no valgrind on the path: install it (Debian: apt-get install valgrind)")
	}
	out, err := exec.Command(hot).Output()
	if err != nil {
		return err
	}
	names := strings.Split(strings.TrimSpace(string(out)), "\n")
	counts := make([]float64, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { counts[i], errs[i] = instructions(hot, name) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	before, err := readCounts(file)
	if err != nil && !update {
		return err
	}
	var text strings.Builder
	text.WriteString("# Instructions of the hot paths, each once, as valgrind counts them. Written by make bench-check UPDATE=1.\n")
	worse := 0
	for i, name := range names {
		fmt.Fprintf(&text, "%-36s %10.0f\n", name, counts[i])
		old := before[name]
		verdict := ""
		switch {
		case old == 0:
			verdict = "new"
		case counts[i] > old*tolerance:
			verdict = "worse"
			worse++
		case counts[i] < old/tolerance:
			verdict = "better"
		}
		fmt.Printf("%-36s %10.0f %10.0f %7.1f %%  %s\n", name, old, counts[i], 100*(counts[i]/cmp.Or(old, counts[i])-1), verdict)
	}
	if update {
		return os.WriteFile(file, []byte(text.String()), 0o644)
	}
	if worse > 0 {
		return fmt.Errorf("%d of %d hot paths need more instructions than %s says; make them cheaper, or run make bench-check UPDATE=1 and say why in the commit", worse, len(names), file)
	}
	return nil
}

var counted = regexp.MustCompile(`Collected : (\d+)`)

// instructions returns the number of instructions for one iteration of a path: the
// difference of two runs, so that the start of the program is not counted.
func instructions(hot, name string) (float64, error) {
	few, many := 500, 2500
	switch {
	case strings.HasPrefix(name, "hold "):
		few, many = 20, 60
	case strings.HasPrefix(name, "search "), strings.HasPrefix(name, "attach "), strings.HasPrefix(name, "list "), strings.HasPrefix(name, "read a "):
		few, many = 10, 40
	case name == "read lines":
		few, many = 10000, 50000
	}
	count := func(n int) (float64, error) {
		cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+os.DevNull, hot, name, strconv.Itoa(n))
		cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1", "GOGC=off")
		out, err := cmd.CombinedOutput()
		m := counted.FindSubmatch(out)
		if err != nil || m == nil {
			return 0, fmt.Errorf("%s: %v: %s", name, err, out)
		}
		return strconv.ParseFloat(string(m[1]), 64)
	}
	a, err := count(few)
	if err != nil {
		return 0, err
	}
	b, err := count(many)
	return (b - a) / float64(many-few), err
}

// readCounts reads the earlier counts.
func readCounts(file string) (map[string]float64, error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]float64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		n, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		counts[strings.Join(slices.Clip(words[:len(words)-1]), " ")] = n
	}
	return counts, lines.Err()
}
