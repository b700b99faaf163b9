package read

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// Limits of PDF files.
const (
	maxPDF      = 20 << 20
	maxPDFPages = 20 // at a time
)

// PDFFile is a PDF file, as a structured result.
type PDFFile struct {
	FilePath     string `json:"filePath"`
	Base64       string `json:"base64"`
	OriginalSize int64  `json:"originalSize"`
}

var pageRange = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ *(\d+) *(?:(-) *(\d*) *)?$`) })

// parsePages parses a range of pages, counted from 1. An open end is 0.
func parsePages(text string) (first, last int, err error) {
	m := pageRange().FindStringSubmatch(text)
	if m != nil {
		first, err = strconv.Atoi(m[1])
		switch {
		case m[2] == "":
			last = first
		case m[3] != "":
			last, _ = strconv.Atoi(m[3])
		}
	}
	if m == nil || err != nil || first < 1 || last != 0 && last < first {
		return 0, 0, tool.Misuse("`pages` must be a page or a range of pages, such as \"3\" or \"1-5\", not %q.", text)
	}
	return first, last, nil
}

// readPDF reads a PDF file, or some of its pages.
func readPDF(place *files.Place, pages string) (*tool.Result, error) {
	first, last := 0, 0
	if pages != "" {
		var err error
		if first, last, err = parsePages(pages); err != nil {
			return nil, err
		}
	}
	data, info, err := place.ReadAll(4 * maxPDF)
	if err != nil {
		return nil, err
	}
	place.Remember(info, data)
	size := int64(len(data))
	doc, err := parsePDF(data)
	note := ""
	switch {
	case err != nil && pages != "":
		return nil, fmt.Errorf("the pages of %s cannot be found (%w). Read it without `pages`, or with a command, such as pdftotext", place.Path, err)
	case err != nil:
		// Pass it to the model unchanged.
	case pages == "" && len(doc.pages) > maxPDFPages:
		return nil, tool.Misuse("%s has %d pages, too many to be read at once. Give `pages`, such as \"1-%d\"; at most %d at a time.", place.Path, len(doc.pages), maxPDFPages, maxPDFPages)
	case pages != "":
		if last == 0 || last > len(doc.pages) {
			last = len(doc.pages)
		}
		if first > len(doc.pages) {
			return nil, tool.Misuse("%s has %d pages; there is no page %d.", place.Path, len(doc.pages), first)
		}
		if last-first+1 > maxPDFPages {
			return nil, tool.Misuse("%d pages are too many to be read at once. At most %d at a time.", last-first+1, maxPDFPages)
		}
		if last-first+1 < len(doc.pages) {
			data = doc.only(doc.pages[first-1 : last])
		}
		note = fmt.Sprintf(", pages %d to %d of %d", first, last, len(doc.pages))
	}
	if len(data) > maxPDF {
		return nil, &files.TooBigError{Path: place.Path, Size: int64(len(data)), Limit: maxPDF}
	}
	text := fmt.Sprintf("PDF file read: %s (%s%s)", place.Given, files.Size(size), note)
	file := &PDFFile{FilePath: place.Given, Base64: base64.StdEncoding.EncodeToString(data), OriginalSize: size}
	return &tool.Result{
		Content:    wire.Blocks(&wire.TextBlock{Text: text}, &wire.DocumentBlock{Source: wire.Base64("application/pdf", data)}),
		Structured: &Output{Type: "pdf", File: file},
	}, nil
}
