package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// proved returns a rule that allows a script, if rules allow everything in it that has
// an effect.
func (j *judgement) proved(s *shell.Script) *Rule {
	text := strings.TrimSpace(s.Text)
	for _, r := range j.set.allow {
		if r.Content == text && r.names(j.req.Tool) && !strings.Contains(text, "*") {
			return r // exactly this command
		}
	}
	if s.Unproven != "" || len(s.Calls) == 0 || len(s.Calls) > 50 {
		return nil
	}
	var last *Rule
	for _, c := range s.Calls {
		if c.Guess || c.Clear {
			continue
		}
		r := j.provedCall(s, c)
		if r == nil && !(c.Quiet && j.reachable(s, c)) {
			unproved(s, c)
			return nil
		}
		if r != nil {
			last = r
		}
		if c.Args[0].Text() == "git" && j.untrustedRepository(s) {
			return nil
		}
	}
	if !j.redirectsAllowed(s) {
		return nil
	}
	return last
}

// redirectsAllowed reports whether the files of redirections may be touched.
func (j *judgement) redirectsAllowed(s *shell.Script) bool {
	for _, f := range s.Files {
		if f.Owner != nil {
			continue
		}
		if !f.Word.Static() || s.AnyDir {
			return false
		}
		kind := tool.Kind(f.Kind)
		for _, path := range absolute(s, f.Word.Text(), false) {
			if j.allows(tool.Access{Kind: kind, Path: path}) == nil && (!j.insideRoots(path) || kind == tool.Write && j.req.Mode != wire.ModeAcceptEdits) {
				verb := "reading "
				if kind == tool.Write {
					verb = "writing "
				}
				unprove(s, "no rule allows "+verb+f.Word.Text())
				return false
			}
		}
	}
	return true
}

// unprove records why a script needs permission, unless a reason is recorded already.
func unprove(s *shell.Script, why string) {
	if s.Unproven == "" {
		s.Unproven = why
	}
}

// unproved records for people why a call needs permission.
func unproved(s *shell.Script, c *shell.Call) {
	if len(c.Danger) == 0 {
		return
	}
	var words []string
	for _, d := range c.Danger {
		words = append(words, d.Word)
	}
	unprove(s, "no rule allows "+c.Args[0].Text()+" with "+strings.Join(words, " and "))
}

// provedCall returns a rule that certainly covers a call.
func (j *judgement) provedCall(s *shell.Script, c *shell.Call) *Rule {
	for _, r := range j.set.allow {
		if r.pattern != nil && !r.pattern.proves(c) { // by far the most common case
			continue
		}
		if r.Content == "" || isFileTool(r.Tool) || !r.names(j.req.Tool) {
			continue
		}
		p := r.command()
		if !p.proves(c) {
			continue
		}
		covered := !slices.ContainsFunc(c.Danger, func(d shell.Danger) bool { return !p.covers(c, d) }) &&
			!slices.ContainsFunc(c.Places, func(at shell.Place) bool { return !j.writable(s, at.Word) && !p.covers(c, shell.Danger{Arg: at.Arg}) })
		if covered {
			return r
		}
		for _, at := range c.Places {
			if !j.writable(s, at.Word) {
				unprove(s, "no rule allows "+c.Args[0].Text()+" to work in "+at.Word.Text())
			}
		}
	}
	return nil
}

// writable reports whether a place is below a root and does not configure what programs
// execute.
func (j *judgement) writable(s *shell.Script, place shell.Word) bool {
	if !place.Static() {
		return false
	}
	if t := place.Text(); t == "" || t == "/dev/null" || t == "-" {
		return true
	}
	for _, p := range absolute(s, place.Text(), false) {
		if !j.insideRoots(p) || protectedName(p, j.resolve(p)) != "" {
			return false
		}
	}
	return true
}

// untrustedRepository reports whether git may work on a repository that somebody else
// prepared, because git executes its configuration. It records the reason.
func (j *judgement) untrustedRepository(s *shell.Script) bool {
	switch {
	case len(s.Dirs) > 1 || s.AnyDir && j.req.cwd() != "":
		unprove(s, "git in another directory uses the configuration there, which can run programs")
	case j.bareRepository(j.req.cwd()):
		unprove(s, "the directory looks like a bare repository, whose configuration can run programs")
	default:
		return false
	}
	return true
}

// bareRepository reports whether git would take a directory, or one above it, for a
// repository because of the files in it, before it finds a .git.
func (j *disk) bareRepository(dir string) bool {
	for ; dir != ""; dir = filepath.Dir(dir) {
		if lookAt(filepath.Join(dir, ".git")).exists() {
			return false
		}
		if j.isFile(filepath.Join(dir, "HEAD")) && j.isDir(filepath.Join(dir, "objects")) && j.isDir(filepath.Join(dir, "refs")) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
	return false
}

// reachable reports whether a call touches nothing outside of the roots, and changes
// nothing.
func (j *judgement) reachable(s *shell.Script, c *shell.Call) bool {
	for _, f := range s.Files {
		if f.Owner != c {
			continue
		}
		if f.Kind != shell.Read || !f.Word.Static() || s.AnyDir {
			return false
		}
		for _, path := range absolute(s, f.Word.Text(), false) {
			if !j.insideRoots(path) && j.allows(tool.Access{Kind: tool.Read, Path: path}) == nil {
				return false
			}
		}
	}
	return true
}

// quiet reports whether a script certainly has no effect: it only prints and reads
// files.
func quiet(s *shell.Script) bool {
	if !s.Steady() {
		return false
	}
	for _, c := range s.Calls {
		if !c.Quiet && !c.Clear {
			return false
		}
	}
	return !slices.ContainsFunc(s.Files, func(f *shell.File) bool { return f.Kind != shell.Read && !f.Loose })
}

// passive reports whether a script certainly changes nothing; it may still need
// permission.
func passive(s *shell.Script) bool {
	if !s.Steady() {
		return false
	}
	for _, c := range s.Calls {
		if !c.Quiet && !c.Clear && !(c.Reads && len(c.Danger) == 0) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Files, func(f *shell.File) bool { return f.Kind != shell.Read })
}

// OnlyReads reports whether a command that starts in dir only reads and prints, and ends in
// the same directory, as far as its programs are known.
func OnlyReads(command, dir, home string) bool {
	s := shell.Analyze(command, shell.Env{Dir: dir, Home: home})
	return len(s.Dirs) == 1 && !s.AnyDir && (passive(s) || s.OnlyReads())
}

// edits reports whether a script certainly does nothing but read and change known
// files.
func edits(s *shell.Script) bool {
	if !s.Steady() || len(s.Dirs) > 1 {
		return false
	}
	for _, c := range s.Calls {
		if !c.Quiet && !c.Edits && !c.Clear {
			return false
		}
	}
	writers, moves, seen := map[*shell.Call]bool{}, false, 0
	for _, f := range s.Files {
		copies := f.Via == "cp" || f.Via == "mv"
		if f.Deep && copies && slices.ContainsFunc(absolute(s, f.Word.Text(), false), func(path string) bool { return holdsProtected(path, &seen) }) {
			return false
		}
		if f.Kind == shell.Write {
			writers[f.Owner] = true
			moves = moves || copies // a copy may put a link in the way
		}
	}
	return !moves || len(writers) == 1
}

// holdsProtected reports whether a directory contains a file that configures what
// programs execute, a link, or too many entries to check.
func holdsProtected(dir string, seen *int) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // a file, or nonexistent
	}
	for _, e := range entries {
		if *seen++; *seen > 2000 || e.Type()&os.ModeSymlink != 0 || protectedName(e.Name()) != "" {
			return true
		}
		if e.IsDir() && holdsProtected(filepath.Join(dir, e.Name()), seen) {
			return true
		}
	}
	return false
}

// writes returns the files that a script certainly changes.
func writes(s *shell.Script) []string {
	var all []string
	for _, f := range s.Files {
		if f.Kind == shell.Write && !f.Loose && f.Word.Static() {
			all = append(all, absolute(s, f.Word.Text(), false)...)
		}
	}
	return all
}

// paths returns the files that a script certainly touches.
func paths(s *shell.Script) []string {
	var all []string
	for _, f := range s.Files {
		if f.Word.Static() && (!f.Loose || f.Via == "cd") && !f.Word.Substituted() {
			all = append(all, absolute(s, f.Word.Text(), false)...)
		}
	}
	return all
}

// describe adds the findings about a script to a receipt.
func describe(s *shell.Script, r *Receipt) {
	for _, c := range s.Calls {
		if c.Guess || len(r.Commands) >= 100 {
			continue
		}
		d := Command{Via: c.Via}
		for _, a := range c.Args {
			d.Args = append(d.Args, a.Text())
			d.Unclear = d.Unclear || !a.Static()
		}
		r.Commands = append(r.Commands, d)
	}
	for _, f := range s.Files {
		if f.Loose || len(r.Files) >= 100 {
			continue
		}
		kind := tool.Kind(f.Kind)
		if !f.Word.Static() {
			r.Files = append(r.Files, File{Kind: kind, Path: f.Word.Raw, Via: f.Via})
			continue
		}
		for _, path := range absolute(s, f.Word.Text(), false) {
			r.Files = append(r.Files, newFile(kind, filepath.Clean(path), f.Via))
		}
	}
	r.Unclear = s.Unclear
}
