package read

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool/tooltest"
)

// makePDF returns a file with some pages. If packed is set, everything but streams is
// in an object stream, as newer programs write it.
func makePDF(pages int, packed bool) string {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>"}
	var kids []string
	for i := range pages {
		kids = append(kids, fmt.Sprintf("%d 0 R", 4+2*i))
	}
	objects = append(objects, fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d /MediaBox [0 0 200 200] /Resources << /Font << /F1 3 0 R >> >> >>", strings.Join(kids, " "), pages))
	objects = append(objects, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Note (a \\) 9 0 R) >>")
	for i := range pages {
		objects = append(objects, fmt.Sprintf("<< /Type /Page /Parent 2 0 R /Contents %d 0 R /Annots [<< /Type /Annot /Dest [%d 0 R /Fit] >>] >>", 5+2*i, 4+2*((i+1)%pages)))
		text := fmt.Sprintf("BT /F1 24 Tf (This is page %d endobj) Tj ET", i+1)
		objects = append(objects, fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(text), text))
	}
	var b strings.Builder
	b.WriteString("%PDF-1.5\n")
	if !packed {
		for i, o := range objects {
			fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
		}
		fmt.Fprintf(&b, "trailer\n<< /Root 1 0 R /Size %d >>\nstartxref\n0\n%%%%EOF\n", len(objects)+1)
		return b.String()
	}
	var head, body bytes.Buffer
	n := 0
	for i, o := range objects {
		if strings.Contains(o, "\nstream\n") {
			fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
			continue
		}
		fmt.Fprintf(&head, "%d %d ", i+1, body.Len())
		body.WriteString(o + "\n")
		n++
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(head.Bytes())
	w.Write(body.Bytes())
	w.Close()
	fmt.Fprintf(&b, "900 0 obj\n<< /Type /ObjStm /N %d /First %d /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream\nendobj\n", n, head.Len(), z.Len(), z.String())
	b.WriteString("901 0 obj\n<< /Type /XRef /Root 1 0 R /Length 0 >>\nstream\n\nendstream\nendobj\n")
	return b.String()
}

func TestPages(t *testing.T) {
	for _, packed := range []bool{false, true} {
		doc, err := parsePDF([]byte(makePDF(25, packed)))
		if err != nil || len(doc.pages) != 25 {
			t.Fatalf("packed %v: %v", packed, err)
		}
		some := doc.only(doc.pages[2:4])
		again, err := parsePDF(some)
		if err != nil || len(again.pages) != 2 {
			t.Fatalf("packed %v: %v\n%s", packed, err, some)
		}
		for n := 1; n <= 25; n++ {
			if got := bytes.Contains(some, []byte(fmt.Sprintf("This is page %d ", n))); got != (n == 3 || n == 4) {
				t.Errorf("packed %v: page %d is there: %v", packed, n, got)
			}
		}
		for _, want := range []string{"/MediaBox [0 0 200 200]", "/Count 2", "/Helvetica", "/Type /Catalog"} {
			if !bytes.Contains(some, []byte(want)) {
				t.Errorf("packed %v: no %s in\n%s", packed, want, some)
			}
		}
	}
}

func TestReadPDF(t *testing.T) {
	env := tooltest.Env(t)
	tooltest.Write(t, env, "small.pdf", makePDF(2, false))
	tooltest.Write(t, env, "big.pdf", makePDF(30, true))
	tooltest.Write(t, env, "broken.pdf", "%PDF-1.4\nnothing")
	tooltest.Write(t, env, "locked.pdf", strings.Replace(makePDF(30, false), "/Root 1 0 R", "/Root 1 0 R /Encrypt 5 0 R", 1))
	for _, c := range []struct {
		path, pages, want string
		isError           bool
	}{
		{"small.pdf", "", "PDF file read: ", false},
		{"small.pdf", "2", "pages 2 to 2 of 2", false},
		{"small.pdf", "2-9", "pages 2 to 2 of 2", false},
		{"big.pdf", "", "has 30 pages, too many to be read at once. Give `pages`, such as \"1-20\"", true},
		{"big.pdf", "11-30", "pages 11 to 30 of 30", false},
		{"big.pdf", "5-", "26 pages are too many", true},
		{"big.pdf", "31", "there is no page 31", true},
		{"big.pdf", "3-2", "must be a page or a range", true},
		{"big.pdf", "x", "must be a page or a range", true},
		{"broken.pdf", "", "PDF file read: ", false},
		{"broken.pdf", "1", "cannot be found (it is damaged", true},
		{"locked.pdf", "1", "it is encrypted", true},
	} {
		r := tooltest.Do(t, env, New(), "file_path", c.path, "pages", c.pages)
		if r.IsError != c.isError || !strings.Contains(r.Content.String(), c.want) {
			t.Errorf("%s %q: %v %q, want %q", c.path, c.pages, r.IsError, r.Content.String(), c.want)
		}
		if !r.IsError && (len(r.Content.Blocks) != 2 || !strings.Contains(tooltest.JSON(t, r), `"type":"pdf","file":{"filePath":"`)) {
			t.Errorf("%s: %d blocks, %.100s", c.path, len(r.Content.Blocks), tooltest.JSON(t, r))
		}
	}
}

// No file makes the parser panic, and pages copied out of a file can be parsed again.
func FuzzPDF(f *testing.F) {
	f.Add([]byte(makePDF(3, false)))
	f.Add([]byte(makePDF(3, true)))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := parsePDF(data)
		if err != nil {
			return
		}
		parsePDF(doc.only(doc.pages[:1]))
	})
}
