package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/session"
)

// compareSessions measures the cost of a session: appending to it, resuming a long one,
// and listing many. The official CLI resumes a smaller session, since it does not
// support one of 1 GB; the official SDK lists the same files. Without these only our
// figures are printed.
func compareSessions(b *board, official, ours, peers string, n int) error {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.begin("Sessions", "official", "Appending to a log, resuming a long session, listing many sessions. The official side is its CLI and its TypeScript SDK.")
	for _, d := range []struct {
		name string
		d    session.Durability
	}{{"fsync", session.Fsync}, {"write", session.Write}, {"none", session.None}} {
		us, err := appends(filepath.Join(dir, "append-"+d.name), d.d)
		if err != nil {
			return err
		}
		b.add(row{title: "append 1 KB, " + d.name, unit: "µs", ours: us})
	}
	for _, big := range []struct {
		title    string
		records  int
		theirs   bool
		time, mb float64 // upper limits
		scan     float64 // and without an index, the same
	}{{"resume 64 MB", 6_400, true, 60, 0, 0}, {"resume 1 GB, 100,000 records", 100_000, false, 300, 60, 600}} {
		home := filepath.Join(dir, fmt.Sprint("home-", big.records))
		id, err := longSession(home, big.records)
		if err != nil {
			return err
		}
		resume := func(cmd *exec.Cmd) {
			// The live part exceeds the window of most models.
			cmd.Args = append(cmd.Args, "--resume", id, "--no-session-persistence", "--model", "claude-opus-5-5")
			cmd.Env = append(cmd.Env, "CLAUDE_CONFIG_DIR="+filepath.Join(home, ".claude"), "DISABLE_AUTO_COMPACT=1")
		}
		var theirs, mine, theirPeak, peak, first []float64
		for i := range n {
			if err := keepSessions(home); err != nil {
				return err
			}
			f, err := runCLI(ours, 0, resume) // this run creates the index
			if err != nil {
				return err
			}
			first = append(first, ms(f.result))
			if big.theirs && i < 3 {
				r, err := runCLI(official, 0, resume)
				if err != nil {
					return err
				}
				theirs, theirPeak = append(theirs, ms(r.result)), append(theirPeak, r.peak)
			}
			r, err := runCLI(ours, 0, resume)
			if err != nil {
				return err
			}
			mine, peak = append(mine, ms(r.result)), append(peak, r.peak)
		}
		b.add(row{title: big.title, unit: "ms", theirs: theirs, ours: mine, limit: big.time})
		b.add(row{title: big.title + ", memory", unit: "MB", theirs: theirPeak, ours: peak, limit: big.mb})
		b.add(row{title: big.title + ", no index yet", unit: "ms", ours: first, limit: big.scan})
		if big.theirs {
			config := filepath.Join(home, ".claude")
			read, err := times(n, func() error {
				said, err := session.Messages(context.Background(), &session.Files{Dir: config}, id, nil)
				if err == nil && len(said) == 0 {
					err = errors.New("no messages")
				}
				return err
			})
			if err != nil {
				return err
			}
			theirs := officialTimes(peers, dir, config, min(n, 3), "if ((await sdk.getSessionMessages("+strconv.Quote(id)+")).length === 0) throw new Error('no messages')")
			b.add(row{title: "read the messages of 64 MB", unit: "ms", theirs: theirs, ours: read})
		}
	}
	return listSessions(b, dir, peers, n)
}

// appends returns the times of appends in microseconds.
func appends(dir string, d session.Durability) ([]float64, error) {
	log, err := session.Create(context.Background(), &session.Files{Dir: dir, Durability: d}, session.Meta{Cwd: dir})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	text, _ := json.Marshal(map[string]any{"role": "user", "content": strings.Repeat("x", 1000)})
	var all []float64
	for range 301 {
		e := &session.Entry{Type: "user", UUID: session.NewID(), Message: text}
		start := time.Now()
		if err := log.Append(e); err != nil {
			return nil, err
		}
		all = append(all, float64(time.Since(start).Nanoseconds())/1000)
	}
	return all, nil
}

// longSession writes a session with records of 10 KB below a home directory, whose last
// compaction is 1 MB before its end.
func longSession(home string, records int) (id string, err error) {
	id = session.NewID()
	dir := filepath.Join(home, ".claude", "projects", "-bench")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file, err := os.Create(filepath.Join(dir, id+".jsonl"))
	if err != nil {
		return "", err
	}
	w := bufio.NewWriterSize(file, 1<<20)
	fill := strings.Repeat("The quick brown fox. ", 460)
	parent := "null"
	write := func(typ, extra, role, text string) {
		uuid := session.NewID()
		message := ""
		if role != "" {
			message = fmt.Sprintf(`"message":{"role":%q,"content":[{"type":"text","text":%q}]},`, role, text)
		}
		fmt.Fprintf(w, `{"parentUuid":%s,"isSidechain":false,"type":%q,%s%s"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z","userType":"external","entrypoint":"cli","cwd":"/bench","sessionId":%q,"version":"2.1.325","gitBranch":"main"}`+"\n",
			parent, typ, message, extra, uuid, id)
		parent = `"` + uuid + `"`
	}
	for i := range records {
		if i == records-100 {
			parent = "null"
			write("system", `"subtype":"compact_boundary","content":"Conversation compacted","compactMetadata":{"trigger":"auto","preTokens":150000},`, "", "")
			write("user", `"isCompactSummary":true,"isVisibleInTranscriptOnly":true,`, "user", "What was said before, in short.")
			write("assistant", "", "assistant", "I see.")
		}
		role := []string{"user", "assistant"}[i%2]
		write(role, "", role, fill)
	}
	return id, errors.Join(w.Flush(), file.Close())
}

// listSessions lists 3,000 sessions of 100 KB.
func listSessions(b *board, dir, peers string, n int) error {
	config := filepath.Join(dir, "many")
	var text strings.Builder
	fill := strings.Repeat("x", 2000)
	for text.Len() < 100<<10 {
		fmt.Fprintf(&text, `{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":%q},"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z","cwd":"/bench","gitBranch":"main"}`+"\n", fill, session.NewID())
	}
	for i := range 3000 {
		project := filepath.Join(config, "projects", fmt.Sprint("-p", i%10))
		if i < 10 {
			if err := os.MkdirAll(project, 0o700); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(project, session.NewID()+".jsonl"), []byte(text.String()), 0o600); err != nil {
			return err
		}
	}
	store := &session.Files{Dir: config, Durability: session.Write} // as the official SDK does
	id := ""
	list := func() error {
		all, err := session.List(context.Background(), store, nil)
		if err != nil || len(all) != 3000 {
			return fmt.Errorf("%d sessions, %v", len(all), err)
		}
		id = all[0].ID
		return nil
	}
	var first, mine []float64
	for range n {
		if err := keepSessions(config); err != nil {
			return err
		}
		both, err := times(2, list) // the first one fills the cache
		if err != nil {
			return err
		}
		first, mine = append(first, both[0]), append(mine, both[1])
	}
	title := "list 3,000 sessions of 100 KB"
	theirs := officialTimes(peers, dir, config, min(n, 3), "const all = await sdk.listSessions(); if (all.length !== 3000) throw new Error(all.length + ' sessions')")
	b.add(row{title: title, unit: "ms", theirs: theirs, ours: mine, limit: 100})
	b.add(row{title: title + ", the first time", unit: "ms", ours: first, limit: 150})
	mine, err := times(n, func() error { return session.Rename(context.Background(), store, id, "A title", nil) })
	if err != nil {
		return err
	}
	theirs = officialTimes(peers, dir, config, n, "await sdk.renameSession("+strconv.Quote(id)+", 'A title')")
	b.add(row{title: "append a title to one of 3,000", unit: "ms", theirs: theirs, ours: mine})
	return nil
}

// keepSessions removes all files but sessions, such as indexes and caches.
func keepSessions(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".jsonl" {
			return err
		}
		return os.Remove(path)
	})
}

// times returns the duration of each call of f, in milliseconds.
func times(n int, f func() error) (all []float64, err error) {
	for range n {
		start := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		all = append(all, ms(time.Since(start)))
	}
	return all, nil
}

// officialTimes returns the durations of a piece of JavaScript that calls the official
// SDK in the directory config, in milliseconds; nothing if the SDK is not available.
func officialTimes(peers, home, config string, n int, script string) (all []float64) {
	sdk := filepath.Join(peers, "node_modules", "@anthropic-ai", "claude-agent-sdk", "sdk.mjs")
	cmd := exec.Command("node", "--input-type=module", "-e", `
const sdk = await import(process.argv[1])
const times = []
for (let i = 0; i < Number(process.argv[2]); i++) {
  const start = performance.now()
  `+script+`
  times.push(performance.now() - start)
}
console.log(JSON.stringify(times))`, sdk, fmt.Sprint(n))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CLAUDE_CONFIG_DIR=" + config}
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err == nil {
		json.Unmarshal(out, &all)
	}
	return all
}
