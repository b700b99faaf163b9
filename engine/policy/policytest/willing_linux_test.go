package policytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// willing executes a call of a tool other than Bash without any check: it is the
// positive control of such rows.
func (p *player) willing(r *Row) []byte {
	w := p.world
	var in map[string]any
	json.Unmarshal(w.Input(r), &in)
	text := func(name string) string { s, _ := in[name].(string); return s }
	var out bytes.Buffer
	switch r.Tool {
	case "Read":
		data, err := os.ReadFile(text("file_path"))
		fmt.Fprintf(&out, "%s%v", data, err)
	case "Write":
		writeFile(text("file_path"), []byte(text("content")))
	case "Edit":
		data, _ := os.ReadFile(text("file_path"))
		writeFile(text("file_path"), bytes.ReplaceAll(data, []byte("a"), []byte("b")))
	case "Grep":
		dir, err := filepath.EvalSymlinks(text("path"))
		if err != nil {
			fmt.Fprint(&out, err)
		}
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				data, _ := os.ReadFile(path)
				out.Write(data)
			}
			return nil
		})
	case "Glob":
		pattern := text("pattern")
		if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
			pattern = filepath.Join(w.Home(), rest)
		} else if !filepath.IsAbs(pattern) {
			pattern = w.Workspace() + "/" + pattern
		}
		for _, p := range []string{pattern, strings.ReplaceAll(pattern, "**/", "")} {
			names, _ := filepath.Glob(p)
			fmt.Fprintln(&out, names)
		}
	case "WebFetch":
		client := http.Client{Timeout: 5 * time.Second}
		res, err := client.Get(text("url"))
		if err != nil {
			fmt.Fprint(&out, err)
			break
		}
		io.Copy(&out, res.Body)
		res.Body.Close()
	default:
		p.serve(&out, in)
	}
	return out.Bytes()
}

func writeFile(path string, data []byte) {
	os.MkdirAll(filepath.Dir(path), 0o755)
	os.WriteFile(path, data, 0o644)
}

// serve acts as an MCP server that treats every text of its input as a file, a pattern,
// a list of files or a command, and "write" as a file to write to.
func (p *player) serve(out *bytes.Buffer, in map[string]any) {
	var texts []string
	var collect func(name string, v any)
	collect = func(name string, v any) {
		switch v := v.(type) {
		case string:
			if v = strings.TrimSpace(v); name == "write" {
				writeFile(p.world.Path(v), []byte("written"))
				return
			}
			texts = append(texts, v)
			if list := strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(",;=\n\"", r) }); len(list) > 1 {
				for _, part := range list {
					texts = append(texts, strings.TrimSpace(part))
				}
			}
		case []any:
			for _, v := range v {
				collect("", v)
			}
		case map[string]any:
			for name, v := range v {
				collect(name, v)
			}
		}
	}
	collect("", in)
	dirs := []string{p.world.Workspace()}
	for _, text := range texts {
		if info, err := os.Stat(p.world.Path(text)); err == nil && info.IsDir() {
			dirs = append(dirs, p.world.Path(text))
		}
	}
	for _, text := range texts {
		if u, err := url.Parse(text); err == nil && strings.EqualFold(u.Scheme, "file") {
			text = u.Path
		}
		if rest, ok := strings.CutPrefix(text, "$HOME/"); ok {
			text = "~/" + rest
		}
		for _, dir := range dirs {
			path := p.world.Path(text)
			if !filepath.IsAbs(text) && !strings.HasPrefix(text, "~/") {
				path = filepath.Join(dir, text)
			}
			names, _ := filepath.Glob(strings.ReplaceAll(path, "**/", ""))
			for _, name := range append(names, path) {
				data, _ := os.ReadFile(name)
				out.Write(data)
			}
		}
		if strings.Contains(text, " ") {
			data, _, _ := p.free(text, nil)
			out.Write(data)
		}
	}
}
