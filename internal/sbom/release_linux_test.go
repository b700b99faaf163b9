package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
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

// A release is small and reproducible, lists its components, and runs without anything else
// installed, in the image of the Containerfile, too.
func TestRelease(t *testing.T) {
	dir, file := release(t)
	c := buildImage(t)
	one, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(c.dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) || bytes.Count(one, []byte("\n")) != 2 {
		t.Errorf("two builds of one source differ:\n%s\n%s", one, two)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(24_000_000); info.Size() >= limit {
		t.Errorf("the command has %d bytes, and is to have less than %d", info.Size(), limit)
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
	t.Run("image", c.check)
}

// A container is the image that the Containerfile defines, as a directory.
type container struct {
	dist, root, home, dir string
	entry                 []string
}

// buildImage runs the instructions of the Containerfile on this machine. No test machine has
// podman and its base images, so the paths of the image are below directories of the test.
func buildImage(t *testing.T) *container {
	t.Helper()
	repo := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(repo, "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	c := &container{dist: filepath.Join(t.TempDir(), "out"), root: filepath.Join(t.TempDir(), "root")}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
		case "FROM":
			version, build := strings.CutPrefix(rest, "docker.io/library/golang:")
			version, _, _ = strings.Cut(version, " ")
			if rest != "scratch" && !(build && strings.Contains(string(mod), "\ngo "+version)) {
				t.Errorf("FROM %s does not have the Go of go.mod", rest)
			}
		case "COPY":
			if rest != ". ." && rest != "--from=build /image/ /" {
				t.Errorf("this test does not know COPY %s", rest)
			}
		case "RUN":
			cmd := exec.Command("sh", "-c", strings.NewReplacer("/dist", c.dist, "/image", c.root).Replace(rest))
			cmd.Dir = repo
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", rest, err, out)
			}
		case "ENV":
			c.home = strings.TrimPrefix(rest, "HOME=")
		case "WORKDIR":
			c.dir = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &c.entry); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("this test does not know %s", word)
		}
	}
	return c
}

// check runs the program with the image as its whole world, as root and as another user.
func (c *container) check(t *testing.T) {
	if info, err := os.Stat(filepath.Join(c.root, "etc", "ssl", "certs", "ca-certificates.crt")); err != nil || info.Size() == 0 {
		t.Errorf("the image has no certificates: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only the superuser can change the root directory")
	}
	for dir := c.root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // the other user needs the way to it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := "turn\n\tcall Read {\"file_path\": \"notes.txt\"}\nturn\n\texpect result milk\n\tsay Milk.\n"
	for name, text := range map[string]string{"notes.txt": "milk\n", "a.script": script} {
		if err := os.WriteFile(filepath.Join(c.root, c.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []uint32{0, 65534} {
		run := func(args ...string) string {
			t.Helper()
			cmd := &exec.Cmd{Path: c.entry[0], Args: append(c.entry[:1:1], args...), Dir: c.dir, Env: []string{"HOME=" + c.home},
				SysProcAttr: &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: user, Gid: user}}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("as user %d: %q: %v\n%s", user, args, err, out)
			}
			return string(out)
		}
		if out := run("version"); !strings.HasPrefix(out, "parley ") {
			t.Error(out)
		}
		if out := run("-p", "--provider", "script", "--script", "a.script", "--", "What do I need?"); out != "Milk.\n" {
			t.Errorf("as user %d: %s", user, out)
		}
		if out := run("sessions"); !strings.Contains(out, "What do I need?") {
			t.Errorf("as user %d: the session was not saved: %s", user, out)
		}
		if err := os.RemoveAll(filepath.Join(c.root, c.home, ".claude")); err != nil {
			t.Fatal(err)
		}
	}
}
