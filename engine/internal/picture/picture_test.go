package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand"
	"strings"
	"testing"
)

func pngOf(t testing.TB, w, h int, noise bool) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	if noise {
		r := rand.New(rand.NewSource(1))
		r.Read(m.Pix)
	} else {
		m.Set(0, 0, color.White)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is fine stays as it is, byte for byte.
func TestFine(t *testing.T) {
	m := image.NewPaletted(image.Rect(0, 0, 3, 2), color.Palette{color.Black, color.White})
	var asGIF, asJPEG bytes.Buffer
	gif.Encode(&asGIF, m, nil)
	jpeg.Encode(&asJPEG, m, nil)
	asWebP, err := base64.StdEncoding.DecodeString("UklGRiIAAABXRUJQVlA4TBYAAAAvAAAAAAfQ//73v/+BiOh/AAA=")
	if err != nil {
		t.Fatal(err)
	}
	for kind, data := range map[string][]byte{"image/png": pngOf(t, 3, 2, false), "image/gif": asGIF.Bytes(), "image/jpeg": asJPEG.Bytes(), "image/webp": asWebP} {
		p, err := Fit(data)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if p.Type != kind || p.Changed || !bytes.Equal(p.Data, data) || p.Width < 1 {
			t.Errorf("%s became %s, %d × %d, changed %v", kind, p.Type, p.Width, p.Height, p.Changed)
		}
	}
}

// What is too big in pixels or in bytes is made smaller.
func TestSmaller(t *testing.T) {
	for name, data := range map[string][]byte{"pixels": pngOf(t, 5000, 100, false), "bytes": pngOf(t, 1200, 1000, true)} {
		p, err := Fit(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !p.Changed || max(p.Width, p.Height) > MaxSide || len(p.Data) > MaxBytes || TypeOf(p.Data) != p.Type {
			t.Errorf("%s: %s, %d × %d, %d bytes", name, p.Type, p.Width, p.Height, len(p.Data))
		}
	}
	if p, _ := Fit(pngOf(t, 5000, 100, false)); p.Width != 2000 || p.Height != 40 || p.OriginalWidth != 5000 {
		t.Errorf("%d × %d of %d × %d", p.Width, p.Height, p.OriginalWidth, p.OriginalHeight)
	}
}

// bomb is a PNG file whose header promises more pixels than anybody has memory for.
func bomb(w, h uint32) []byte {
	var b bytes.Buffer
	b.WriteString("\x89PNG\r\n\x1a\n")
	head := []byte("IHDR")
	head = binary.BigEndian.AppendUint32(head, w)
	head = binary.BigEndian.AppendUint32(head, h)
	head = append(head, 8, 6, 0, 0, 0)
	binary.Write(&b, binary.BigEndian, uint32(13))
	b.Write(head)
	binary.Write(&b, binary.BigEndian, crc32.ChecksumIEEE(head))
	return b.Bytes()
}

// What no model takes is refused, with the reason.
func TestRefused(t *testing.T) {
	whole := pngOf(t, 40, 40, true)
	liar, _ := base64.StdEncoding.DecodeString("UklGRiIAAABXRUJQVlA4TBYAAAAvAAAAAAfQ//73v/+BiOh/AAA=")
	canvas := append([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00VP8L\x10\x00\x00\x00\x2f\xff\xff\xff\xff"), liar[21:]...)
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "empty"},
		{"zeros", make([]byte, 3), "no PNG"},
		{"text", []byte("<svg/>"), "no PNG"},
		{"cut off", whole[:len(whole)/2], "damaged"},
		{"bomb", bomb(60000, 60000), "pixels"},
		{"bomb near the limit", bomb(8000, 8000), "damaged"},
		{"big", append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, MaxInput)...), "bytes"},
		{"a frame beyond its canvas", canvas, "canvas"},
	} {
		if p, err := Fit(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", c.name, p != nil, err)
		}
	}
}

// A part that readers may do without, and that is damaged, is left out; any other that is
// damaged is a reason to refuse.
func TestMended(t *testing.T) {
	whole := pngOf(t, 3, 2, false)
	part := func(kind string, sum uint32) []byte {
		b := binary.BigEndian.AppendUint32(nil, 4)
		b = append(b, kind+"data"...)
		return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE([]byte(kind+"data"))+sum)
	}
	const header = 8 + 25
	with := func(part []byte) []byte {
		return append(append(bytes.Clone(whole[:header]), part...), whole[header:]...)
	}
	if p, err := Fit(with(part("iCCP", 1))); err != nil || !p.Changed || !bytes.Equal(p.Data, whole) {
		t.Error(p, err)
	}
	if p, err := Fit(with(part("tEXt", 0))); err != nil || p.Changed || !bytes.Equal(p.Data, with(part("tEXt", 0))) {
		t.Error(p, err)
	}
	for _, bad := range [][]byte{with(part("ABCD", 1)), whole[:len(whole)-20], append(bytes.Clone(whole[:header]), 0xff, 0xff)} {
		if p, err := Fit(bad); err == nil {
			t.Error(p)
		}
	}
}

func FuzzFit(f *testing.F) {
	f.Add(pngOf(f, 3, 3, true))
	f.Add(bomb(100, 100))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00VP8L\x10\x00\x00\x00\x2f\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Fit(data)
		if err == nil && (len(p.Data) > MaxBytes || TypeOf(p.Data) != p.Type || max(p.Width, p.Height) > MaxSide) {
			t.Errorf("%s of %d × %d", p.Type, p.Width, p.Height)
		}
	})
}
