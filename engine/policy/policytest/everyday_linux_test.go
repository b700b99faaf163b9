package policytest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/sandbox"
)

//go:embed everyday.sh
var everydayScript string

func init() { workerKinds["everyday"] = (*player).everyday }

// homeTools are commands whose programs are in the home directory.
var homeTools = []string{"node --version", "npm --version", "python3.12 --version", "cargo --version", "rustc --version", "which node cargo", "git lg"}

// everyday runs the everyday commands outside and behind the wall, and reports those
// whose output or exit status differ.
func (p *player) everyday() error {
	w := p.world
	script := exec.Command("bash", "-c", everydayScript)
	script.Dir, script.Env = w.Base, []string{"PATH=" + os.Getenv("PATH"), "BASE=" + w.Base, "LAYOUT=" + p.job.Layout}
	if out, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	root := w.Base + "/w/shop"
	if p.job.Layout == "submodule" {
		root = w.Base + "/w/whole/shop"
	}
	home := w.Home()
	os.Setenv("PATH", strings.Join([]string{home + "/.nvm/versions/node/v20.0.0/bin", home + "/.pyenv/shims", home + "/.cargo/bin", os.Getenv("PATH")}, ":"))
	p.wall = sandbox.NewWall(sandbox.WallOptions{Home: home, Path: os.Getenv("PATH")})
	defer p.wall.Close()
	if err := p.wall.Ready(); err != nil {
		return p.out.Encode(result{Row: -1, Ran: "no wall", Note: err.Error()})
	}
	list := EverydayCommands()
	for _, c := range homeTools {
		list = append(list, EverydayCommand{Command: c})
	}
	for i, c := range list {
		res, err := p.compare(i, c, root)
		if err != nil {
			return err
		}
		if err := p.out.Encode(res); err != nil {
			return err
		}
	}
	return nil
}

// compare runs a command outside and behind the wall. If they differ, it runs the command outside
// again: output that changes by itself, such as the time, is compared once more.
func (p *player) compare(row int, c EverydayCommand, root string) (result, error) {
	res := result{Row: row, Ran: c.Command}
	same := func(a, b *output) bool {
		return a.status == b.status && (c.Volatile || mask(c.Command, a.text) == mask(c.Command, b.text))
	}
	outside, err := p.outside(root, c.Command)
	if err != nil {
		return res, err
	}
	for range 10 {
		text, status, err := p.behindWall(c.Command, sandbox.View{Roots: []string{root}}, 10*limit)
		if err != nil {
			return res, err
		}
		inside, before := &output{text, status}, outside
		if same(before, inside) {
			return res, nil
		}
		res.Note = fmt.Sprintf("status %d and %d\noutside: %s\ninside:  %s", before.status, status, tail(before.text, 400), tail(text, 400))
		if outside, err = p.outside(root, c.Command); err != nil {
			return res, err
		}
		if same(before, outside) {
			break
		}
	}
	res.Fired = true
	return res, nil
}

// An output is what a command printed, and its exit status.
type output struct {
	text   []byte
	status int
}

// outside runs a command with the same environment and no wall.
func (p *player) outside(dir, command string) (*output, error) {
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = dir, sandbox.Environ(p.environ())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return nil, err
	}
	return &output{out, cmd.ProcessState.ExitCode()}, nil
}

var volatileParts = regexp.MustCompile(`\b[0-9]{2}:[0-9]{2}(:[0-9]{2})?\b|bash: line [0-9]+|\bpid [0-9]+`)

// mask hides times and process ids, and the order in which rg finds files.
func mask(command string, out []byte) string {
	text := volatileParts.ReplaceAllString(string(out), "#")
	if strings.HasPrefix(command, "rg ") {
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		text = strings.Join(lines, "\n")
	}
	return text
}

// TestEveryday checks that everyday commands have the same output and exit status
// behind the wall as outside.
func TestEveryday(t *testing.T) {
	for _, user := range []int{0, anotherUser} {
		for _, layout := range []string{"plain", "symlink", "worktree", "submodule"} {
			if os.Getenv("PARLEY_TEST_LONG") == "" && (user == 0) != (layout == "plain") {
				continue
			}
			t.Run(fmt.Sprintf("%s/user %d", layout, user), func(t *testing.T) {
				same := 0
				for _, res := range throwaway(t, job{Kind: "everyday", Layout: layout, User: user}) {
					if res.Row < 0 {
						t.Skip(res.Note)
					}
					if res.Fired {
						t.Errorf("%s: %s", res.Ran, res.Note)
						continue
					}
					same++
				}
				if same < 150 {
					t.Errorf("%d commands are the same, want at least 150", same)
				}
			})
		}
	}
}
