// Package console is the web page of parley serve: it watches, approves and steers
// sessions in a browser.
//
// The page consists of plain ES modules and CSS, embedded here without a build step. Two
// libraries are from third parties, complete and unchanged; page/vendor.txt lists their
// files. The page holds no data: it logs in and reads everything from the API of package
// serve, which documents it. Text that a model or a tool wrote always reaches the page as
// text. [Markdown] and [Diff] turn it into trees, from which the page builds elements of a
// fixed list, never from HTML.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed page
var page embed.FS

// types maps file name suffixes of the page to content types.
var types = map[string]string{
	".html":        "text/html; charset=utf-8",
	".js":          "text/javascript; charset=utf-8",
	".css":         "text/css; charset=utf-8",
	".svg":         "image/svg+xml",
	".webmanifest": "application/manifest+json",
}

// A file is a file of the page.
type file struct {
	kind           string
	tag            string // changes whenever the file does
	whole, smaller []byte // smaller is compressed
}

// comment matches the lines of a module that are only a comment. Browsers do not receive them.
var comment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^[ \t]*//.*\n`) })

// files holds the files of the page by path.
var files = sync.OnceValue(func() map[string]*file {
	all := map[string]*file{}
	list, err := page.ReadDir("page")
	vendor, vendorErr := page.ReadFile("page/vendor.txt")
	if err = errors.Join(err, vendorErr); err != nil {
		panic(err) // it is embedded
	}
	for _, e := range list {
		kind := types[path.Ext(e.Name())]
		if kind == "" {
			continue
		}
		data, err := page.ReadFile("page/" + e.Name())
		if err != nil {
			panic(err)
		}
		if path.Ext(e.Name()) == ".js" && !bytes.Contains(vendor, []byte("\n"+e.Name()+" ")) {
			data = comment().ReplaceAll(data, nil)
		}
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		w.Write(data)
		w.Close()
		sum := sha256.Sum256(data)
		all["/"+e.Name()] = &file{kind, `"` + hex.EncodeToString(sum[:8]) + `"`, data, b.Bytes()}
	}
	all["/"] = all["/index.html"]
	return all
})

// Handler serves the files of the page, for Config.Console of package serve.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := files()[r.URL.Path]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache")
		h.Set("Vary", "Accept-Encoding")
		h.Set("ETag", f.tag)
		data := f.whole
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			data = f.smaller
		}
		if r.Header.Get("If-None-Match") == f.tag {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(data)
	})
}
