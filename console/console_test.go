package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Third-party files are unchanged.
func TestVendored(t *testing.T) {
	list, err := os.ReadFile("page/vendor.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("page", f[0]))
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f[4] {
			t.Errorf("%s is not the file of %s: its SHA-256 is %x", f[0], f[1], sum)
		}
		rows++
	}
	if rows != 5 {
		t.Errorf("vendor.txt has %d rows", rows)
	}
}

// The page is small, compressed, and asks only when a file has changed.
func TestHandler(t *testing.T) {
	h := Handler()
	ask := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	total := 0
	for path, f := range files() {
		if path == "/" {
			continue
		}
		plain := ask(path)
		small := ask(path, "Accept-Encoding", "br, gzip")
		total += small.Body.Len()
		z, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(path, err)
		}
		data, _ := io.ReadAll(z)
		if plain.Code != 200 || small.Code != 200 || !bytes.Equal(data, plain.Body.Bytes()) || plain.Header().Get("Content-Type") != f.kind {
			t.Errorf("%s: %d %v, %d %v", path, plain.Code, plain.Header(), small.Code, small.Header())
		}
		if again := ask(path, "Accept-Encoding", "gzip", "If-None-Match", plain.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if total > 60<<10 {
		t.Errorf("the page has %d bytes, compressed, want at most %d", total, 60<<10)
	}
	for _, path := range []string{"/vendor.txt", "/page/app.js", "/../console.go", "/x"} {
		if got := ask(path); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
}

// The page has no inline script or style, loads nothing from other sites, and creates
// elements from text in only one way.
func TestPageIsPlain(t *testing.T) {
	bad := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|unsafeHTML|\beval\(|new Function|srcdoc|\bstyle=|<script[^>]*>[^<]|\son\w+="|(src|href|url)\s*[=(]\s*["']?(https?:)?//`)
	list, _ := filepath.Glob("page/*")
	for _, name := range list {
		base := filepath.Base(name)
		if strings.HasPrefix(base, "uplot") || strings.HasPrefix(base, "lit-html") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := bad.Find(data); m != nil {
			t.Errorf("%s has %q", name, m)
		}
	}
}

// allowed matches the tags that the page creates elements for.
var allowed = regexp.MustCompile(`^(p|h[456]|blockquote|hr|br|ul|ol|li|code|em|strong|del|table|thead|tr|th|td|pre|a)?$`)

// check reports tags and links that must not be there, and returns all text.
func check(t *testing.T, nodes []Node) string {
	var b strings.Builder
	for _, n := range nodes {
		if !allowed.MatchString(n.Tag) {
			t.Errorf("a tag %q", n.Tag)
		}
		if n.Href != "" && !regexp.MustCompile(`^(?i)(https?|mailto):`).MatchString(n.Href) {
			t.Errorf("a link to %q", n.Href)
		}
		b.WriteString(n.Text)
		b.WriteString(check(t, n.Nodes))
	}
	return b.String()
}

func TestMarkdown(t *testing.T) {
	for source, want := range map[string]string{
		"":                              `[]`,
		"a **b** `c`":                   `[{"tag":"p","nodes":[{"text":"a "},{"tag":"strong","nodes":[{"text":"b"}]},{"text":" "},{"tag":"code","nodes":[{"text":"c"}]}]}]`,
		"# x":                           `[{"tag":"h4","nodes":[{"text":"x"}]}]`,
		"```go\nx\n```":                 `[{"tag":"pre","lang":"go","nodes":[{"text":"x\n"}]}]`,
		"3. x":                          `[{"tag":"ol","start":3,"nodes":[{"tag":"li","nodes":[{"text":"x"}]}]}]`,
		"[x](https://e.com)":            `[{"tag":"p","nodes":[{"tag":"a","href":"https://e.com","nodes":[{"text":"x"}]}]}]`,
		"![x](https://e.com/p.png)":     `[{"tag":"p","nodes":[{"tag":"a","href":"https://e.com/p.png","nodes":[{"text":"picture: "},{"text":"x"}]}]}]`,
		"[x](javascript:alert(1))":      `[{"tag":"p","nodes":[{"text":"x (javascript:alert(1))"}]}]`,
		"[x](/v1/logout)":               `[{"tag":"p","nodes":[{"text":"x (/v1/logout)"}]}]`,
		"<b onclick=x()>":               `[{"tag":"code","nodes":[{"text":"<b onclick=x()>"}]}]`,
		"|a|\n|-|\n|b|":                 `[{"tag":"table","nodes":[{"tag":"thead","nodes":[{"tag":"tr","nodes":[{"tag":"th","nodes":[{"text":"a"}]}]}]},{"tag":"tr","nodes":[{"tag":"td","nodes":[{"text":"b"}]}]}]}]`,
		"<script>\nalert(1)\n</script>": `[{"tag":"code","nodes":[{"text":"<script>\nalert(1)\n</script>"}]}]`,
		"- [x] done":                    `[{"tag":"ul","nodes":[{"tag":"li","nodes":[{"text":"☑ done"}]}]}]`,
	} {
		nodes := Markdown(source)
		check(t, nodes)
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.Encode(nodes)
		if got := strings.TrimSpace(b.String()); got != want {
			t.Errorf("%q:\n%s, want\n%s", source, got, want)
		}
	}
	deep := Markdown(strings.Repeat("> ", 2000) + "x")
	if depth(deep) > maxDepth+1 || !strings.Contains(check(t, deep), "x") {
		t.Errorf("deep quotes: %d", depth(deep))
	}
	if long := Markdown(strings.Repeat("*a", maxText)); len(long) != 1 || long[0].Tag != "pre" {
		t.Error("a long text is read")
	}
}

func depth(nodes []Node) (n int) {
	for _, x := range nodes {
		n = max(n, 1+depth(x.Nodes))
	}
	return n
}

func FuzzMarkdown(f *testing.F) {
	f.Add("**a** <b> [x](javascript:y) ![](data:z)\n\n|a|\n|-|\n\n<!-- -->")
	f.Fuzz(func(t *testing.T, source string) {
		if nodes := Markdown(source); depth(nodes) > maxDepth+3 {
			t.Errorf("depth %d", depth(nodes))
		} else {
			check(t, nodes)
		}
	})
}

func TestDiff(t *testing.T) {
	got := Diff("--- a\n+++ b\n@@ -3,2 +3,3 @@ func x\n same\n-old\n+new\n+--- not a file\n@@ -9 +10 @@\n-x\n\\ No newline at end of file\n+y\n")
	want := []Line{
		{"file", 0, 0, "--- a"}, {"file", 0, 0, "+++ b"}, {"hunk", 0, 0, "@@ -3,2 +3,3 @@ func x"},
		{"same", 3, 3, "same"}, {"del", 4, 0, "old"}, {"add", 0, 4, "new"}, {"add", 0, 5, "--- not a file"},
		{"hunk", 0, 0, "@@ -9 +10 @@"}, {"del", 9, 0, "x"}, {"file", 0, 0, `\ No newline at end of file`}, {"add", 0, 10, "y"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
}
