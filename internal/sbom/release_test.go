package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// release builds this platform's program as make release does.
func release(t *testing.T) (dir, file string) {
	t.Helper()
	for _, tool := range []string{"bash", "sha256sum", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	dir = t.TempDir()
	cmd := exec.Command("bash", filepath.Join("..", "..", "scripts", "release"))
	cmd.Env = append(os.Environ(), "RELEASE_DIR="+dir, "RELEASE_PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, err := filepath.Glob(filepath.Join(dir, "parley_*_"+runtime.GOARCH))
	if err != nil || len(all) != 1 {
		t.Fatalf("%q, %v", all, err)
	}
	return dir, all[0]
}

// A release is reproducible, lists its components, and runs without anything else
// installed.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("releases are made on Linux")
	}
	dir, file := release(t)
	again, _ := release(t)
	one, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) || bytes.Count(one, []byte("\n")) != 2 {
		t.Errorf("two builds of one source differ:\n%s\n%s", one, two)
	}
	data, err := os.ReadFile(file + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Format != "CycloneDX" || doc.Metadata.Component.Hashes[0].Content == "" || !bytes.Contains(one, []byte(doc.Metadata.Component.Hashes[0].Content)) {
		t.Errorf("%+v", doc.Metadata)
	}
	if !strings.Contains(string(data), `"pkg:golang/github.com/modelcontextprotocol/go-sdk@v`) || len(doc.Components) < 10 {
		t.Errorf("%d components:\n%s", len(doc.Components), data)
	}
	if out, err := exec.Command(file, "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "parley ") {
		t.Errorf("%v %s", err, out)
	}
	t.Run("image", func(t *testing.T) { image(t, file) })
}

// image puts the program where the Containerfile puts it and runs it with that as its
// whole world.
func image(t *testing.T, file string) {
	if os.Getuid() != 0 {
		t.Skip("only the superuser can change the root directory")
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Skip(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"tmp", "home", "project"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 25_000_000 {
		t.Errorf("the image has %d bytes", len(data))
	}
	if err := os.WriteFile(filepath.Join(root, "parley"), data, 0o777); err != nil {
		t.Fatal(err)
	}
	script := "turn\n\tcall Read {\"file_path\": \"/project/notes.txt\"}\nturn\n\texpect result milk\n\tsay Milk.\n"
	for name, text := range map[string]string{"notes.txt": "milk\n", "a.script": script} {
		if err := os.WriteFile(filepath.Join(root, "project", name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(chroot, append([]string{root, "/parley"}, args...)...)
		cmd.Env = []string{"HOME=/home"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("version"); !strings.HasPrefix(out, "parley ") {
		t.Error(out)
	}
	if out := run("-p", "--provider", "script", "--script", "/project/a.script", "--add-dir", "/project", "--allowedTools", "Read", "--", "What do I need?"); !strings.Contains(out, "Milk.") {
		t.Error(out)
	}
}
