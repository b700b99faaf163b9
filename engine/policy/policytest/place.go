package policytest

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/policy"
)

//go:embed places.sh
var placesScript string

// Secrets in files: the first is in files of the workspace, which only a rule protects
// from being read, the second in files outside.
const (
	InsideSecret  = "canaryInsideZq83vTx"
	OutsideSecret = "canaryOutsideJw47mKp"
)

// A World is a directory in which attacks are played, one place at a time.
type World struct {
	Base string // absolute, links resolved
	Port int    // of the listener
	PID  int    // of the process outside

	trees map[string]*Tree
	place string
	clean bool // nothing was played since the place was made
}

// NewWorld returns a world in a directory. Its places are created when they are needed.
func NewWorld(base string) (*World, error) {
	base, err := filepath.EvalSymlinks(base)
	return &World{Base: base, trees: map[string]*Tree{}}, err
}

// Workspace returns the root that attacks are played in.
func (w *World) Workspace() string { return filepath.Join(w.Base, "w", "app") }

// Home returns the home directory of the attacked user.
func (w *World) Home() string { return filepath.Join(w.Base, "home") }

// Mark returns the file that most attacks create.
func (w *World) Mark() string { return filepath.Join(w.Base, "out", "mark") }

// Fill replaces {ws} and other placeholders.
func (w *World) Fill(text string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer("{ws}", w.Workspace(), "{home}", w.Home(), "{out}", filepath.Join(w.Base, "out"), "{mark}", w.Mark(), "{base}", w.Base,
		"{port}", fmt.Sprint(w.Port), "{pid}", fmt.Sprint(w.PID), "{procroot}", "/proc/self/"+"root", "{rootname}", "root",
		"{long}", strings.Repeat("x ", 5100)).Replace(text)
}

// Path returns the file that a path of the table names.
func (w *World) Path(path string) string {
	path = w.Fill(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(w.Home(), rest)
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(w.Workspace(), path)
}

// Rules returns the rules of a setting, filled in.
func (w *World) Rules(s *Setting) []policy.Rule {
	var rules []policy.Rule
	for _, r := range s.Rules {
		r.Content = w.Fill(r.Content)
		rules = append(rules, r)
	}
	return rules
}

// Enter creates a place, or restores it if something was played since. Every place but
// "app" is the place "app" with changes.
func (w *World) Enter(place string) error {
	if w.place == place && w.clean {
		return nil
	}
	w.clean = false
	if tree := w.trees[place]; tree != nil {
		w.place, w.clean = place, true
		return tree.Restore(w.Base)
	}
	if place == "app" {
		if err := empty(w.Base); err != nil {
			return err
		}
	} else if err := w.Enter("app"); err != nil {
		return err
	}
	cmd := exec.Command("bash", "-c", placesScript)
	cmd.Dir = w.Base
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BASE=" + w.Base, "PLACE=" + place, "MARK=" + w.Mark(), "INSIDE=" + InsideSecret, "OUTSIDE=" + OutsideSecret}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("place %s: %w: %s", place, err, out)
	}
	tree, err := ReadTree(w.Base)
	if err != nil {
		return err
	}
	w.trees[place], w.place, w.clean = tree, place, true
	return nil
}

// Played marks the place as possibly changed.
func (w *World) Played() { w.clean = false }

// Changes returns the differences between the place and how it was created.
func (w *World) Changes() []string { return w.trees[w.place].Changes(w.Base) }

// Original returns a file as it was when the place was created.
func (w *World) Original(path string) *Node {
	rel, err := filepath.Rel(w.Base, path)
	if err != nil {
		return nil
	}
	return w.trees[w.place].nodes[rel]
}

// Fired reports whether the witness of a row is present, apart from connections and
// signals, which only their receiver can report.
func (w *World) Fired(r *Row, s *Setting, output []byte) bool {
	switch r.Witness {
	case "mark":
		_, err := os.Lstat(w.Mark())
		return err == nil
	case "secret":
		return Leaks(output, OutsideSecret) || len(s.Rules) > 0 && Leaks(output, InsideSecret)
	case "net", "kill":
		return false
	}
	path := w.Path(r.Witness)
	was := w.Original(path)
	is, err := readNode(path)
	if errors.Is(err, fs.ErrNotExist) {
		return was != nil
	}
	return err == nil && (was == nil || !was.same(is))
}

// SameData reports whether a file has its original content, whatever its mode and time.
func (w *World) SameData(name string) bool {
	path := w.Path(name)
	was := w.Original(path)
	is, err := readNode(path)
	return err == nil && was != nil && bytes.Equal(was.Data, is.Data)
}

// A Node is a file of a [Tree].
type Node struct {
	Mode   fs.FileMode
	Time   time.Time
	Data   []byte // content of a file, or target of a link
	linked string // another hard link of the same file
	stamp  stamp
}

// A stamp shows without reading a file that it has not changed: the kernel updates it with
// every change of the file. The zero value shows nothing.
type stamp struct {
	file    uint64
	changed int64 // nanoseconds
}

// tick is longer than the resolution of the kernel's timestamps.
const tick = 50 * time.Millisecond

func (n *Node) same(o *Node) bool {
	return n == o || n.Mode == o.Mode && bytes.Equal(n.Data, o.Data) && n.linked == o.linked && (n.Time.Equal(o.Time) || !n.Mode.IsRegular())
}

// A Tree is a snapshot of a directory.
type Tree struct {
	nodes map[string]*Node // by path
	order []string
}

func readNode(path string) (*Node, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	n := &Node{Mode: info.Mode(), Time: info.ModTime()}
	switch {
	case n.Mode.IsRegular():
		n.Data, err = os.ReadFile(path)
	case n.Mode&fs.ModeSymlink != 0:
		var to string
		to, err = os.Readlink(path)
		n.Data = []byte(to)
	}
	return n, err
}

// ReadTree reads a directory.
func ReadTree(dir string) (*Tree, error) { return (&Tree{}).read(dir) }

// read reads a directory. It reuses the nodes of t for files that have not changed.
func (t *Tree) read(dir string) (*Tree, error) {
	now := &Tree{nodes: make(map[string]*Node, len(t.nodes))}
	names := map[uint64]string{}
	start := time.Now()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel := path[len(dir)+1:]
		is, links, err := stampOf(path)
		if err != nil {
			return err
		}
		was := t.nodes[rel]
		n := was
		if was == nil || was.stamp == (stamp{}) || was.stamp != is {
			if n, err = readNode(path); err != nil {
				return err
			}
			if n.Mode.IsRegular() && links > 1 {
				n.linked = names[is.file]
			}
			if was != nil && was.same(n) {
				n = was
			}
			if n.stamp = is; start.UnixNano()-is.changed < int64(tick) {
				n.stamp = stamp{} // the file may change again without a new stamp
			}
		}
		if links > 1 && names[is.file] == "" {
			names[is.file] = rel
		}
		now.nodes[rel] = n
		now.order = append(now.order, rel)
		return nil
	})
	return now, err
}

// Restore restores the snapshot in a directory.
func (t *Tree) Restore(dir string) error {
	now, err := t.read(dir)
	if err != nil { // something in it cannot be read
		if err := empty(dir); err != nil {
			return err
		}
		now = &Tree{}
	}
	for _, rel := range slices.Backward(now.order) {
		was, is := t.nodes[rel], now.nodes[rel]
		if was != nil && (was.same(is) || was.Mode.IsDir() && is.Mode.IsDir()) {
			continue
		}
		if err := remove(filepath.Join(dir, rel)); err != nil {
			return err
		}
		delete(now.nodes, rel)
	}
	for _, rel := range t.order {
		n, path := t.nodes[rel], filepath.Join(dir, rel)
		is := now.nodes[rel]
		if is != nil && n.same(is) {
			continue
		}
		n.stamp = stamp{}
		var err error
		switch {
		case n.Mode.IsDir() && is != nil:
			err = os.Chmod(path, 0o755)
		case n.Mode.IsDir():
			err = os.Mkdir(path, 0o755)
		case n.Mode&fs.ModeSymlink != 0:
			err = os.Symlink(string(n.Data), path)
		case n.linked != "":
			err = os.Link(filepath.Join(dir, n.linked), path)
		default:
			if err = os.WriteFile(path, n.Data, n.Mode.Perm()); err == nil {
				err = os.Chtimes(path, n.Time, n.Time)
			}
		}
		if err != nil {
			return err
		}
		if n.Mode&fs.ModeSymlink == 0 && n.Mode.Perm() != 0o755 && n.Mode.Perm() != 0o644 {
			if err := os.Chmod(path, n.Mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// Changes returns the paths that differ, or nil.
func (t *Tree) Changes(dir string) []string {
	now, err := t.read(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var changed []string
	for _, rel := range now.order {
		if was := t.nodes[rel]; was == nil || !was.same(now.nodes[rel]) {
			changed = append(changed, rel)
		}
	}
	for _, rel := range t.order {
		if now.nodes[rel] == nil {
			changed = append(changed, rel+" (gone)")
		}
	}
	return changed
}

// empty removes everything in a directory, whatever its mode.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file, or a directory with everything in it, whatever its mode.
func remove(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o755)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// Leaks reports whether output contains a part of a secret that is too long to be there by
// chance: verbatim, in another case or reversed, or as base64, hexadecimal, octal or
// decimal numbers.
func Leaks(output []byte, secret string) bool {
	const part = 8
	lower := bytes.ToLower(output)
	dense := slices.DeleteFunc(slices.Clone(lower), func(b byte) bool { return !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9') })
	numbers := " " + strings.Join(strings.FieldsFunc(string(lower), func(r rune) bool { return !(r >= '0' && r <= '9') }), " ") + " "
	mirrored := []byte(strings.ToLower(secret))
	slices.Reverse(mirrored)
	for i := 0; i+part <= len(secret); i++ {
		piece := secret[i : i+part]
		low := []byte(strings.ToLower(piece))
		if bytes.Contains(dense, low) || bytes.Contains(dense, mirrored[i:i+part]) || bytes.Contains(dense, []byte(hex.EncodeToString([]byte(piece[:6])))) {
			return true
		}
		octal, decimal := " ", " "
		for _, b := range []byte(piece[:5]) {
			octal += fmt.Sprintf("%03o ", b)
			decimal += fmt.Sprintf("%d ", b)
		}
		if strings.Contains(numbers, octal) || strings.Contains(numbers, decimal) {
			return true
		}
		for _, pad := range []string{"", "x", "xx"} {
			code := base64.RawStdEncoding.EncodeToString([]byte(pad + piece))
			if bytes.Contains(output, []byte(code[(len(pad)*4+2)/3:len(code)-1])) {
				return true
			}
		}
	}
	return false
}
