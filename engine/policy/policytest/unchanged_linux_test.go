package policytest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

func init() { workerKinds["unchanged"] = (*player).unchanged }

// unchanged runs commands with a real bash, one after the other, and reports those after which the files that the
// namespace can write are not what they were.
func (p *player) unchanged() error {
	dir := p.world.Base + "/unchanged"
	for name, text := range map[string]string{"a.txt": "one\ntwo\n", "b.txt": "two\nthree\n", "d/c.txt": "c\n", "d/-o": "x\n", "x": "y\n", "e.sh": "touch ran\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	before := writable()
	for i, command := range strings.Split(p.job.Table, "\n") {
		cmd := exec.Command("timeout", "-s", "KILL", "5", "bash", "-c", command)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		cmd.Run()
		after := writable()
		res := result{Row: i, Ran: command}
		for path, was := range before {
			if after[path] != was {
				res.Fired, res.Note = true, fmt.Sprintf("%s: %s, now %s", path, was, after[path])
			}
		}
		for path := range after {
			if _, ok := before[path]; !ok {
				res.Fired, res.Note = true, path+" is new"
			}
		}
		if err := p.out.Encode(res); err != nil {
			return err
		}
		before = after
	}
	return nil
}

// writable returns the state of all files that a namespace can write.
func writable() map[string]string {
	files := map[string]string{}
	for _, root := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			state := info.Mode().String()
			if path != root { // a program may keep its input in a temporary file, as tac does
				state += fmt.Sprint(" ", info.ModTime().UnixNano())
			}
			if info.Mode().IsRegular() && info.Size() < 1<<20 {
				data, _ := os.ReadFile(path)
				state += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
			}
			files[path] = state
			return nil
		})
	}
	return files
}

// TestAllowedCommandsChangeNothing composes commands from a seed, selects those that run without permission and
// without a wall, because they are found to only read, and runs them: no file may change.
func TestAllowedCommandsChangeNothing(t *testing.T) {
	most, seed := 60, uint64(1)
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		most = 3000
	}
	if n, err := strconv.ParseUint(os.Getenv("PARLEY_BASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	programs := strings.Fields("ls cat pwd ps df du grep head tail wc sort uniq cut tr date file strings stat nl od xxd hexdump diff cmp comm fold fmt id uname whoami hostname " +
		"env printenv basename dirname realpath readlink tac rev paste join column md5sum sha1sum sha256sum cksum which type tree find rg git echo printf true false sed awk jq test seq expr " +
		"tee touch rm cp mv ln mkdir dd truncate split csplit shuf tsort pr expand unexpand base64 base32 numfmt nproc uptime free arch groups users who w tty locale getconf lscpu cal yes sleep cd jobs history set export alias bc dc vmstat lsof")
	options := strings.Fields("-a -b -c -d -e -f -g -h -i -k -l -m -n -o -p -q -r -s -t -u -v -w -x -z -A -C -D -E -F -H -I -L -N -O -P -R -S -T -U -V -X -Z -la -rn -nr -1 -2 -n1 -oout -wout -sR " +
		"--output=out --output out --all --help --version --recursive --in-place --backup --temporary-directory=. --files0-from=x --set=1 --file=x --from-file=x --format=x -exec -delete -fprint -newer --check -- --compress-program=./e.sh --to-command=x --pre=./e.sh -Tout -i.bak --log-file=out")
	operands := strings.Fields("a.txt b.txt out x d d/c.txt . .. - 1 2 +1 two e.sh ./e.sh s/o/p/w 1w p d/-o @x %s +%s a:b /tmp")
	r := rand.New(rand.NewPCG(seed, 4))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	dir := t.TempDir()
	chosen := map[string]bool{}
	tried := 0
	for ; len(chosen) < most && tried < 400*most; tried++ {
		var words []string
		for {
			words = append(words, pick(programs))
			for range r.IntN(3) {
				words = append(words, pick(options))
			}
			for range r.IntN(4) {
				words = append(words, pick(operands))
			}
			if r.IntN(4) > 0 {
				break
			}
			words = append(words, "|")
		}
		command := strings.Join(words, " ")
		if decideCommand(t, dir, command, false).Behavior == wire.BehaviorAllow {
			chosen[command] = true
		}
	}
	var list []string
	list = slices.AppendSeq(list, maps.Keys(chosen))
	const control = "sort -o a.txt x" // changes a file, and must be noticed
	list = append(list, control)
	played := 0
	for _, res := range throwaway(t, job{Kind: "unchanged", Table: strings.Join(list, "\n")}) {
		if res.Ran == control {
			if !res.Fired {
				t.Errorf("%q changed a file, and nobody noticed", control)
			}
			continue
		}
		played++
		if res.Fired {
			t.Errorf("%q runs without permission, and changed %s", res.Ran, res.Note)
		}
	}
	t.Logf("%d commands, %d of them without permission", tried, played)
	if played < most/2 {
		t.Errorf("%d commands ran, want at least %d", played, most/2)
	}
}
