package read

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A document is a PDF file, parsed as far as needed to copy pages out of it.
//
// Objects are found by scanning the whole file instead of using its tables, so that
// broken tables do not matter. A later object with the same number replaces an earlier
// one, as in files that were updated.
type document struct {
	objects map[int]object
	root    ref   // of the page tree
	pages   []ref // in order
	parents map[ref]ref
}

// An object is an object of a PDF file.
type object struct {
	raw   []byte // as in the file, with its stream
	value any
}

// Types of values, in addition to []any, float64, and string for anything else.
type (
	ref  int
	name string
	dict struct {
		keys   []name
		values map[name]any
	}
)

// Limits for parsing a PDF file, against malicious files.
const (
	maxDepth    = 60
	maxPages    = 20_000
	maxInflated = 64 << 20
	maxFailed   = 2 << 20 // bytes of text that looks like a value but is not
)

var errPDF = errors.New("it is damaged or of an unknown kind")

// parsePDF parses a file.
func parsePDF(data []byte) (*document, error) {
	d := &document{objects: map[int]object{}, parents: map[ref]ref{}}
	var catalog any
	inflated, failed := 0, 0
	find := &finder{data: data, obj: -1, trailer: -1}
	for at := 0; ; {
		num, start, kind := find.object(at)
		if kind == "" {
			break
		}
		l := &lexer{data: data, at: start}
		value, err := l.value(0)
		if err != nil {
			if failed += l.at - start; failed > maxFailed {
				return nil, errPDF // most of it is scanned again and again
			}
			at = start
			continue
		}
		if kind == "trailer" {
			if t, ok := value.(*dict); ok {
				if t.values["Encrypt"] != nil {
					return nil, errors.New("it is encrypted")
				}
				catalog = orElse(t.values["Root"], catalog)
			}
			at = l.at
			continue
		}
		end := l.at
		body, after, isStream := l.stream(value)
		if isStream {
			end = after
			sd := value.(*dict)
			switch sd.values["Type"] {
			case name("XRef"):
				if sd.values["Encrypt"] != nil {
					return nil, errors.New("it is encrypted")
				}
				catalog = orElse(sd.values["Root"], catalog)
			case name("ObjStm"):
				n, err := d.unpack(sd, body, maxInflated-inflated)
				if err != nil {
					return nil, err
				}
				inflated += n
			}
		}
		d.objects[num] = object{raw: data[start:end], value: value}
		at = end
	}
	top, _ := d.get(catalog).(*dict)
	if top == nil {
		return nil, errPDF
	}
	root, ok := top.values["Pages"].(ref)
	if !ok {
		return nil, errPDF
	}
	d.root = root
	if err := d.collect(root, 0, map[ref]bool{}); err != nil {
		return nil, err
	}
	if len(d.pages) == 0 {
		return nil, errPDF
	}
	return d, nil
}

func orElse(v, other any) any {
	if v == nil {
		return other
	}
	return v
}

// A finder searches a file for keywords, and for each only once.
type finder struct {
	data         []byte
	obj, trailer int // next occurrences
}

// next advances place to the next occurrence of a word at or after at.
func (f *finder) next(place *int, word string, at int) int {
	if *place < at {
		*place = len(f.data)
		if i := bytes.Index(f.data[at:], []byte(word)); i >= 0 {
			*place = at + i
		}
	}
	return *place
}

// object finds the next "1 0 obj" or "trailer" and the start of its value.
func (f *finder) object(at int) (num, start int, kind string) {
	data := f.data
	for at < len(data) {
		i, t := f.next(&f.obj, "obj", at), f.next(&f.trailer, "trailer", at)
		if t < i {
			return 0, t + len("trailer"), "trailer"
		}
		if i == len(data) {
			return 0, 0, ""
		}
		at = i + 3
		if i >= 3 && string(data[i-3:i]) == "end" {
			continue
		}
		// Backwards: white space, generation, white space, number.
		head := bytes.TrimRight(data[max(0, i-40):i], " \t\r\n\x00\f")
		fields := bytes.FieldsFunc(head, func(r rune) bool { return r < '0' || r > '9' })
		if len(fields) < 2 || len(head) == 0 || head[len(head)-1] < '0' || head[len(head)-1] > '9' {
			continue
		}
		num, err := strconv.Atoi(string(fields[len(fields)-2]))
		if err != nil {
			continue
		}
		return num, at, "obj"
	}
	return 0, 0, ""
}

// unpack parses the objects of an object stream, and returns their size in bytes.
func (d *document) unpack(sd *dict, body []byte, limit int) (int, error) {
	if f := sd.values["Filter"]; f != nil {
		if list, ok := f.([]any); ok && len(list) == 1 {
			f = list[0]
		}
		if f != name("FlateDecode") || sd.values["DecodeParms"] != nil {
			return 0, errPDF
		}
		r, err := zlib.NewReader(bytes.NewReader(body))
		if err != nil {
			return 0, errPDF
		}
		// Checksums are often wrong; use what was read.
		body, _ = io.ReadAll(io.LimitReader(r, int64(limit)+1))
		if len(body) > limit {
			return 0, errPDF
		}
	}
	n, _ := sd.values["N"].(float64)
	first, _ := sd.values["First"].(float64)
	l := &lexer{data: body}
	for range int(n) {
		num, err1 := l.value(0)
		offset, err2 := l.value(0)
		nf, ok1 := num.(float64)
		of, ok2 := offset.(float64)
		if err1 != nil || err2 != nil || !ok1 || !ok2 {
			return 0, errPDF
		}
		start := int(first) + int(of)
		if start < 0 || start > len(body) {
			return 0, errPDF
		}
		in := &lexer{data: body, at: start}
		value, err := in.value(0)
		if err != nil {
			return 0, errPDF
		}
		d.objects[int(nf)] = object{raw: body[start:in.at], value: value}
	}
	return len(body), nil
}

// get follows a reference.
func (d *document) get(v any) any {
	for range maxDepth {
		r, ok := v.(ref)
		if !ok {
			return v
		}
		v = d.objects[int(r)].value
	}
	return nil
}

// collect lists the pages below a node of the page tree.
func (d *document) collect(node ref, depth int, seen map[ref]bool) error {
	if seen[node] || depth > maxDepth || len(d.pages) > maxPages {
		return errPDF
	}
	seen[node] = true
	n, _ := d.get(node).(*dict)
	if n == nil {
		return nil
	}
	kids, isTree := d.get(n.values["Kids"]).([]any)
	if !isTree {
		d.pages = append(d.pages, node)
		return nil
	}
	for _, kid := range kids {
		k, ok := kid.(ref)
		if !ok {
			return errPDF
		}
		d.parents[k] = node
		if err := d.collect(k, depth+1, seen); err != nil {
			return err
		}
	}
	return nil
}

// only returns a file with some of the pages and the objects that they need.
func (d *document) only(pages []ref) []byte {
	// Keep the nodes of the page tree that lead to the pages, with fewer children.
	kept := map[ref]int{}
	for _, p := range pages {
		for node, ok := p, true; ok; node, ok = d.parents[node] {
			kept[node]++
		}
	}
	written := map[int][]byte{}
	var need []ref
	for node, count := range kept {
		o := d.objects[int(node)]
		n := d.get(node).(*dict)
		kids, isTree := d.get(n.values["Kids"]).([]any)
		if !isTree {
			written[int(node)] = o.raw
			need = append(need, refsIn(o.value, "Parent")...)
			continue
		}
		pruned := &dict{values: map[name]any{}}
		for _, k := range n.keys {
			pruned.set(k, n.values[k])
		}
		kids = slices.DeleteFunc(slices.Clone(kids), func(k any) bool { return kept[k.(ref)] == 0 })
		pruned.set("Kids", kids)
		pruned.set("Count", float64(count))
		written[int(node)] = []byte(write(pruned))
		need = append(need, refsIn(n, "Parent", "Kids")...)
	}
	for len(need) > 0 {
		r := need[len(need)-1]
		need = need[:len(need)-1]
		o, ok := d.objects[int(r)]
		if _, done := written[int(r)]; done || !ok {
			continue
		}
		// Links to other pages lead nowhere.
		if v, ok := o.value.(*dict); ok && (v.values["Type"] == name("Page") || v.values["Type"] == name("Pages")) {
			continue
		}
		written[int(r)] = o.raw
		need = append(need, refsIn(o.value)...)
	}
	numbers := make([]int, 0, len(written))
	for num := range written {
		numbers = append(numbers, num)
	}
	slices.Sort(numbers)
	catalog := numbers[len(numbers)-1] + 1
	written[catalog] = []byte(fmt.Sprintf("<< /Type /Catalog /Pages %d 0 R >>", d.root))
	numbers = append(numbers, catalog)

	var b, table bytes.Buffer
	b.WriteString("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
	table.WriteString("xref\n0 1\n0000000000 65535 f \n")
	for _, num := range numbers {
		fmt.Fprintf(&table, "%d 1\n%010d 00000 n \n", num, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", num)
		b.Write(written[num])
		b.WriteString("\nendobj\n")
	}
	at := b.Len()
	b.Write(table.Bytes())
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n", catalog+1, catalog, at)
	return b.Bytes()
}

// refsIn lists the references in a value, except those under some of its keys.
func refsIn(v any, except ...name) []ref {
	switch v := v.(type) {
	case ref:
		return []ref{v}
	case []any:
		var refs []ref
		for _, item := range v {
			refs = append(refs, refsIn(item)...)
		}
		return refs
	case *dict:
		var refs []ref
		for _, k := range v.keys {
			if !slices.Contains(except, k) {
				refs = append(refs, refsIn(v.values[k])...)
			}
		}
		return refs
	}
	return nil
}

func (d *dict) set(k name, v any) {
	if _, ok := d.values[k]; !ok {
		d.keys = append(d.keys, k)
	}
	d.values[k] = v
}

// write encodes a value.
func write(v any) string {
	switch v := v.(type) {
	case ref:
		return fmt.Sprintf("%d 0 R", v)
	case name:
		return "/" + string(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = write(item)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *dict:
		var b strings.Builder
		b.WriteString("<<")
		for _, k := range v.keys {
			b.WriteString(" /" + string(k) + " " + write(v.values[k]))
		}
		return b.String() + " >>"
	case string:
		return v
	}
	return "null"
}

// A lexer parses values.
type lexer struct {
	data []byte
	at   int
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\r\n\f\x00", c) >= 0 }

func isDelim(c byte) bool { return strings.IndexByte("()<>[]{}/%", c) >= 0 }

func (l *lexer) skip() {
	for l.at < len(l.data) {
		switch c := l.data[l.at]; {
		case isSpace(c):
			l.at++
		case c == '%':
			for l.at < len(l.data) && l.data[l.at] != '\n' && l.data[l.at] != '\r' {
				l.at++
			}
		default:
			return
		}
	}
}

// word reads characters that are neither space nor delimiters.
func (l *lexer) word() string {
	start := l.at
	for l.at < len(l.data) && !isSpace(l.data[l.at]) && !isDelim(l.data[l.at]) {
		l.at++
	}
	return string(l.data[start:l.at])
}

// value parses a value.
func (l *lexer) value(depth int) (any, error) {
	l.skip()
	if l.at >= len(l.data) || depth > maxDepth {
		return nil, errPDF
	}
	start := l.at
	switch c := l.data[l.at]; c {
	case '/':
		l.at++
		return name(l.word()), nil
	case '(':
		return l.text()
	case '[':
		l.at++
		list := []any{}
		for {
			l.skip()
			if l.at < len(l.data) && l.data[l.at] == ']' {
				l.at++
				return list, nil
			}
			v, err := l.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	case '<':
		if l.at+1 < len(l.data) && l.data[l.at+1] == '<' {
			l.at += 2
			return l.dict(depth)
		}
		end := bytes.IndexByte(l.data[l.at:], '>')
		if end < 0 {
			l.at = len(l.data)
			return nil, errPDF
		}
		l.at += end + 1
		return string(l.data[start:l.at]), nil
	case ')', ']', '>', '{', '}':
		return nil, errPDF
	}
	word := l.word()
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		if word == "" {
			return nil, errPDF
		}
		return word, nil // true, false, null
	}
	// It may be the first number of a reference.
	if num, err := strconv.Atoi(word); err == nil && num >= 0 {
		after := l.at
		l.skip()
		if _, err := strconv.Atoi(l.word()); err == nil {
			l.skip()
			if l.word() == "R" {
				return ref(num), nil
			}
		}
		l.at = after
	}
	return f, nil
}

func (l *lexer) dict(depth int) (any, error) {
	d := &dict{values: map[name]any{}}
	for {
		l.skip()
		if l.at+1 < len(l.data) && l.data[l.at] == '>' && l.data[l.at+1] == '>' {
			l.at += 2
			return d, nil
		}
		k, err := l.value(depth + 1)
		if err != nil {
			return nil, err
		}
		key, ok := k.(name)
		if !ok {
			return nil, errPDF
		}
		v, err := l.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.set(key, v)
	}
}

// text reads a string in parentheses, verbatim.
func (l *lexer) text() (any, error) {
	start, depth := l.at, 0
	for ; l.at < len(l.data); l.at++ {
		switch l.data[l.at] {
		case '\\':
			l.at++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				l.at++
				return string(l.data[start:l.at]), nil
			}
		}
	}
	return nil, errPDF
}

// stream finds the stream that may follow a dictionary, and its end.
func (l *lexer) stream(value any) (body []byte, after int, ok bool) {
	d, isDict := value.(*dict)
	l.skip()
	if !isDict || !bytes.HasPrefix(l.data[l.at:], []byte("stream")) {
		return nil, 0, false
	}
	start := l.at + len("stream")
	if start < len(l.data) && l.data[start] == '\r' {
		start++
	}
	if start < len(l.data) && l.data[start] == '\n' {
		start++
	}
	const end = "endstream"
	if n, ok := d.values["Length"].(float64); ok && n >= 0 && n <= float64(len(l.data)-start) {
		rest := bytes.TrimLeft(l.data[start+int(n):min(len(l.data), start+int(n)+20)], " \t\r\n")
		if bytes.HasPrefix(rest, []byte(end)) {
			i := start + int(n) + bytes.Index(l.data[start+int(n):], []byte(end))
			return l.data[start : start+int(n)], i + len(end), true
		}
	}
	i := bytes.Index(l.data[start:], []byte(end))
	if i < 0 {
		return l.data[start:], len(l.data), true // avoid scanning the rest again for each object
	}
	return bytes.TrimRight(l.data[start:start+i], "\r\n"), start + i + len(end), true
}
