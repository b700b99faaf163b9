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

// A picture that fits is not changed, byte for byte.
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

// A picture that is too big in pixels or bytes is made smaller.
func TestSmaller(t *testing.T) {
	small := limits{30_000, 100} // the real ones, scaled down a hundred times
	for _, c := range []struct {
		name   string
		limits limits
		data   []byte
		kind   string
	}{
		{"pixels", limits{MaxBytes, MaxSide}, pngOf(t, 5000, 10, false), "image/png"},
		{"pixels, less", small, pngOf(t, 300, 10, false), "image/png"},
		{"bytes", small, pngOf(t, 100, 99, true), "image/jpeg"},
		{"both", limits{20_000, 100}, pngOf(t, 200, 300, true), "image/jpeg"},
		{"bytes, smaller and smaller", limits{1500, 100}, pngOf(t, 90, 90, true), "image/jpeg"},
	} {
		p, err := c.limits.fit(c.data)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !p.Changed || max(p.Width, p.Height) > c.limits.side || len(p.Data) > c.limits.bytes || p.Type != c.kind || TypeOf(p.Data) != p.Type {
			t.Errorf("%s: %s, %d × %d, %d bytes", c.name, p.Type, p.Width, p.Height, len(p.Data))
		}
		if w, h, err := size(p.Type, p.Data); err != nil || w != p.Width || h != p.Height {
			t.Error(c.name, w, h, err)
		}
	}
	if p, _ := Fit(pngOf(t, 5000, 100, false)); p.Width != 2000 || p.Height != 40 || p.OriginalWidth != 5000 {
		t.Errorf("%d × %d of %d × %d", p.Width, p.Height, p.OriginalWidth, p.OriginalHeight)
	}
	if _, err := (limits{10, 100}).fit(pngOf(t, 90, 90, true)); err == nil || !strings.Contains(err.Error(), "cannot be made small enough") {
		t.Error(err)
	}
}

// at returns a pixel of a converted picture as a shade of grey.
func at(t *testing.T, p *Picture, x, y int) uint8 {
	t.Helper()
	m, err := decode(p.Type, p.Data)
	if err != nil {
		t.Fatal(err)
	}
	return color.GrayModel.Convert(m.At(x, y)).(color.Gray).Y
}

// Transparent pixels become white if the smaller picture cannot be transparent.
func TestTransparent(t *testing.T) {
	m := image.NewPaletted(image.Rect(0, 0, 300, 300), color.Palette{color.Transparent, color.Black})
	for x := range 300 {
		m.SetColorIndex(x, 150, 1)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{m, m}, Delay: []int{1, 1}}); err != nil {
		t.Fatal(err)
	}
	if p, err := Fit(b.Bytes()); err != nil || p.Changed || p.Type != "image/gif" {
		t.Error("what moves and fits was changed", err)
	}
	p, err := limits{MaxBytes, 100}.fit(b.Bytes())
	if err != nil || p.Type != "image/jpeg" || at(t, p, 50, 10) < 240 || at(t, p, 50, 50) > 200 {
		t.Errorf("%s, a page of the shade %d with a line of %d, %v", p.Type, at(t, p, 50, 10), at(t, p, 50, 50), err)
	}
}

// Pictures of cameras and scanners: with 16 bits, in CMYK, and rotated.
func TestDepthsAndTurns(t *testing.T) {
	deep := image.NewNRGBA64(image.Rect(0, 0, 300, 200))
	for i := range deep.Pix {
		deep.Pix[i] = 0xff
	}
	var b bytes.Buffer
	if err := png.Encode(&b, deep); err != nil {
		t.Fatal(err)
	}
	if p, err := (limits{MaxBytes, 100}).fit(b.Bytes()); err != nil || p.Width != 100 || at(t, p, 50, 30) != 255 {
		t.Error(p, err)
	}
	if p, err := (limits{MaxBytes, 4}).fit(cmyk(t)); err != nil || p.Width != 4 || TypeOf(p.Data) != "image/jpeg" {
		t.Error(p, err)
	}

	// Its left third is dark.
	m := image.NewGray(image.Rect(0, 0, 300, 200))
	for i := range m.Pix {
		if i%300 >= 100 {
			m.Pix[i] = 255
		}
	}
	for turn, dark := range map[byte]string{0: "left", 1: "left", 2: "right", 3: "right", 4: "left", 5: "top", 6: "top", 7: "bottom", 8: "bottom", 9: "left"} {
		for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
			b.Reset()
			if err := jpeg.Encode(&b, m, nil); err != nil {
				t.Fatal(err)
			}
			p, err := limits{MaxBytes, 90}.fit(withExif(b.Bytes(), order, turn))
			if err != nil {
				t.Fatal(err)
			}
			sides := map[string]uint8{"left": at(t, p, 3, p.Height/2), "right": at(t, p, p.Width-4, p.Height/2), "top": at(t, p, p.Width/2, 3), "bottom": at(t, p, p.Width/2, p.Height-4)}
			for side, shade := range sides {
				if (side == dark) != (shade < 60) {
					t.Errorf("turned by %d: %s has the shade %d", turn, side, shade)
				}
			}
			if tall := dark == "top" || dark == "bottom"; tall != (p.Height > p.Width) || tall != (p.OriginalHeight > p.OriginalWidth) {
				t.Errorf("turned by %d: %d × %d", turn, p.Width, p.Height)
			}
		}
	}
	for _, bad := range []string{"", "\xff\xd8", "\xff\xd8\xff\xe1\x00\x01", "\xff\xd8\xff\xe1\x00\x10Exif\x00\x00MM\x00*\xff\xff\xff\xff", "\xff\xd8\xff\xe1\x00\x12Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff"} {
		if got := orientation([]byte(bad)); got != 1 {
			t.Errorf("%q: %d", bad, got)
		}
	}
}

// withExif sets the orientation in a JPEG file.
func withExif(data []byte, order binary.AppendByteOrder, turn byte) []byte {
	word := "MM"
	if order == binary.AppendByteOrder(binary.LittleEndian) {
		word = "II"
	}
	tiff := order.AppendUint32(order.AppendUint16([]byte(word), 42), 8)
	tiff = order.AppendUint16(tiff, 2)
	for _, e := range [][2]uint16{{0x0100, 300}, {0x0112, uint16(turn)}} {
		tiff = order.AppendUint32(order.AppendUint16(order.AppendUint16(tiff, e[0]), 3), 1)
		tiff = order.AppendUint16(order.AppendUint16(tiff, e[1]), 0)
	}
	part := append([]byte("\xff\xe1"), binary.BigEndian.AppendUint16(nil, uint16(2+6+len(tiff)))...)
	part = append(append(part, "Exif\x00\x00"...), tiff...)
	return append(append(bytes.Clone(data[:2]), part...), data[2:]...)
}

// cmyk returns a JPEG file of 8 × 8 pixels with four components, which the standard library
// does not encode: a file of one component, declared as four, with its data repeated four
// times.
func cmyk(t *testing.T) []byte {
	b := []byte("\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00") // the colours are CMYK, inverted
	b = append(b, "\xff\xdb\x00\x43\x00"...)
	b = append(b, bytes.Repeat([]byte{1}, 64)...)
	b = append(b, "\xff\xc0\x00\x14\x08\x00\x08\x00\x08\x04\x01\x11\x00\x02\x11\x00\x03\x11\x00\x04\x11\x00"...)
	for class := range 2 { // each table has one code, of one bit, for zero
		b = append(b, 0xff, 0xc4, 0, 20, byte(class<<4), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	b = append(b, "\xff\xda\x00\x0e\x04\x01\x00\x02\x00\x03\x00\x04\x00\x00\x3f\x00"...)
	b = append(b, 0x00) // four components, two codes each
	b = append(b, "\xff\xd9"...)
	if m, err := jpeg.Decode(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	} else if _, ok := m.(*image.CMYK); !ok {
		t.Fatalf("%T", m)
	}
	return b
}

// bomb returns a PNG file whose header declares more pixels than fit into memory.
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

// A picture that no model accepts is rejected, with the reason.
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
		{"zeros", make([]byte, 3), "not a PNG"},
		{"text", []byte("<svg/>"), "not a PNG"},
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

// A damaged optional chunk is left out; any other damage is a reason to reject the picture.
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
