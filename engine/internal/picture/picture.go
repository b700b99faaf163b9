// Package picture converts pictures so that models accept them.
//
// [Fit] checks every picture (from a prompt, a file or a server) before it becomes part of
// a conversation: if the API rejected one picture, it would reject every later request,
// too. Pictures are untrusted input: their headers are read before their pixels, and no
// more pixels are decoded than [MaxPixels].
//
// The package does not access files.
package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/webp"
)

// Limits of pictures: those of models, and those of the input.
const (
	MaxInput  = 32 << 20   // bytes of input
	MaxBytes  = 3_700_000  // bytes that a model accepts; 5 MB as base64
	MaxSide   = 2000       // pixels of the longer side, also among many pictures
	MaxPixels = 64_000_000 // pixels that are decoded
)

// A Picture is a picture that models accept.
type Picture struct {
	Data           []byte
	Type           string // such as "image/png"
	Width, Height  int    // 0 if unknown
	OriginalWidth  int
	OriginalHeight int
	Changed        bool // Data differs from the input
}

// TypeOf returns the media type of a picture from its first bytes, or "" if models do not
// accept it.
func TypeOf(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif"
	case len(data) >= 16 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}

// Fit checks a picture and makes it smaller if necessary. The error is the reason why no
// model would accept it.
func Fit(data []byte) (*Picture, error) { return limits{MaxBytes, MaxSide}.fit(data) }

// limits are the limits of models.
type limits struct{ bytes, side int }

func (l limits) fit(data []byte) (*Picture, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	kind := TypeOf(data)
	if kind == "" {
		return nil, errors.New("it is not a PNG, JPEG, GIF or WebP picture")
	}
	if len(data) > MaxInput {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(data), MaxInput)
	}
	given := len(data)
	if kind == "image/png" {
		data = repaired(data)
	}
	w, h, err := size(kind, data)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if w <= 0 || h <= 0 {
		return nil, errors.New("it has no pixels")
	}
	if w > MaxPixels/h {
		return nil, fmt.Errorf("it has %d × %d pixels; the limit is %d", w, h, MaxPixels)
	}
	p := &Picture{Data: data, Type: kind, Width: w, Height: h, OriginalWidth: w, OriginalHeight: h, Changed: len(data) != given}
	fits := len(data) <= l.bytes && max(w, h) <= l.side
	if fits && animated(kind, data) {
		return p, nil // the decoder does not support animations; the API does
	}
	src, err := decode(kind, data)
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if fits {
		return p, nil
	}
	turn := 1
	if kind == "image/jpeg" {
		turn = orientation(data)
	}
	return p, p.shrink(src, turn, l)
}

// repaired returns a PNG picture without optional chunks that have wrong checksums. Some
// programs write such colour profiles.
func repaired(data []byte) []byte {
	const head, frame = 8, 12 // the signature; length, type and checksum of a chunk
	kept, all := data[:head:head], true
	for rest := data[head:]; len(rest) > 0; {
		if len(rest) < frame || binary.BigEndian.Uint32(rest) > uint32(len(rest)-frame) {
			kept = append(kept, rest...) // the decoder reports the error
			break
		}
		n := int(binary.BigEndian.Uint32(rest))
		part := rest[:frame+n]
		rest = rest[frame+n:]
		optional := part[4]&0x20 != 0
		if optional && crc32.ChecksumIEEE(part[4:8+n]) != binary.BigEndian.Uint32(part[8+n:]) {
			all = false
			continue
		}
		kept = append(kept, part...)
	}
	if all {
		return data
	}
	return kept
}

// size reads the size from the header.
func size(kind string, data []byte) (w, h int, err error) {
	var c image.Config
	r := bytes.NewReader(data)
	switch kind {
	case "image/png":
		c, err = png.DecodeConfig(r)
	case "image/jpeg":
		c, err = jpeg.DecodeConfig(r)
	case "image/gif":
		c, err = gif.DecodeConfig(r)
	case "image/webp":
		if len(data) >= 30 && string(data[12:16]) == "VP8X" {
			// The size of the canvas, which contains all frames.
			return 1 + int(data[24]) + int(data[25])<<8 + int(data[26])<<16, 1 + int(data[27]) + int(data[28])<<8 + int(data[29])<<16, nil
		}
		c, err = webp.DecodeConfig(r)
	}
	return c.Width, c.Height, err
}

// animated reports whether a WebP picture is animated.
func animated(kind string, data []byte) bool {
	return kind == "image/webp" && len(data) >= 21 && string(data[12:16]) == "VP8X" && data[20]&0x02 != 0
}

// decode decodes the pixels, of the first frame if there are several.
func decode(kind string, data []byte) (image.Image, error) {
	r := bytes.NewReader(data)
	switch kind {
	case "image/png":
		return png.Decode(r)
	case "image/jpeg":
		return jpeg.Decode(r)
	case "image/gif":
		return gif.Decode(r)
	}
	if len(data) >= 30 && string(data[12:16]) == "VP8X" {
		if w, h, ok := innerSize(data); ok && w > MaxPixels/max(h, 1) {
			return nil, errors.New("its frame is bigger than its canvas")
		}
	}
	return webp.Decode(r)
}

// innerSize returns the size of the first bitstream of an extended WebP file, which may
// differ from that of the canvas.
func innerSize(data []byte) (w, h int, ok bool) {
	for at := 12; at+8 <= len(data); {
		n := int(binary.LittleEndian.Uint32(data[at+4:]))
		body := data[at+8:]
		switch string(data[at : at+4]) {
		case "VP8 ":
			if len(body) < 10 {
				return 0, 0, false
			}
			return int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff), true
		case "VP8L":
			if len(body) < 5 {
				return 0, 0, false
			}
			bits := binary.LittleEndian.Uint32(body[1:])
			return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, true
		}
		if n < 0 || n > len(body) {
			return 0, 0, false
		}
		at += 8 + n + n&1
	}
	return 0, 0, false
}

// shrink makes the picture smaller until models accept it. It applies the orientation in
// the file, which would be lost otherwise.
func (p *Picture) shrink(src image.Image, turn int, l limits) error {
	side := min(l.side, max(p.OriginalWidth, p.OriginalHeight))
	lossless := p.Type == "image/png"
	if turn >= 5 {
		p.OriginalWidth, p.OriginalHeight = p.OriginalHeight, p.OriginalWidth
	}
	for range 6 {
		small := turned(scale(src, side), turn)
		var b bytes.Buffer
		var err error
		kind := "image/jpeg"
		if lossless {
			kind = "image/png"
			err = png.Encode(&b, small)
		} else {
			err = jpeg.Encode(&b, opaque(small), &jpeg.Options{Quality: 85})
		}
		if err != nil {
			return err
		}
		if b.Len() <= l.bytes {
			p.Data, p.Type, p.Changed = b.Bytes(), kind, true
			p.Width, p.Height = small.Bounds().Dx(), small.Bounds().Dy()
			return nil
		}
		if !lossless {
			side = side * 3 / 4
		}
		lossless = false
	}
	return errors.New("it cannot be made small enough")
}

// opaque draws a picture on white, as pages do: JPEG has no transparency and would show
// black.
func opaque(src image.Image) image.Image {
	if o, ok := src.(interface{ Opaque() bool }); ok && o.Opaque() {
		return src
	}
	to := image.NewRGBA(src.Bounds())
	draw.Draw(to, to.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(to, to.Rect, src, src.Bounds().Min, draw.Over)
	return to
}

// orientation returns the Exif orientation of a JPEG file: 1 is normal, 3 is upside down, 6
// and 8 are rotated by a quarter, and even ones are mirrored.
func orientation(data []byte) int {
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		kind, n := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if kind == 0xda || n < 2 || at+2+n > len(data) {
			break
		}
		tiff, ok := bytes.CutPrefix(data[at+4:at+2+n], []byte("Exif\x00\x00"))
		at += 2 + n
		if kind != 0xe1 || !ok || len(tiff) < 8 {
			continue
		}
		var order binary.ByteOrder = binary.BigEndian
		if tiff[0] == 'I' {
			order = binary.LittleEndian
		}
		dir := order.Uint32(tiff[4:])
		if uint64(dir)+2 > uint64(len(tiff)) {
			break
		}
		entries := tiff[dir+2:]
		for range order.Uint16(tiff[dir:]) {
			if len(entries) < 12 {
				break
			}
			if value := order.Uint16(entries[8:]); order.Uint16(entries) == 0x0112 && value >= 1 && value <= 8 {
				return int(value)
			}
			entries = entries[12:]
		}
		break
	}
	return 1
}

// turned applies an Exif orientation to a picture.
func turned(src image.Image, how int) image.Image {
	if how <= 1 {
		return src
	}
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	if how >= 5 {
		w, h = h, w
	}
	to := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			fromX, fromY := x, y
			if how >= 5 {
				fromX, fromY = y, x
			}
			if how == 2 || how == 3 || how == 7 || how == 8 {
				fromX = b.Dx() - 1 - fromX
			}
			if how == 3 || how == 4 || how == 6 || how == 7 {
				fromY = b.Dy() - 1 - fromY
			}
			to.Set(x, y, src.At(b.Min.X+fromX, b.Min.Y+fromY))
		}
	}
	return to
}

// scale scales a picture so that its longer side has the given number of pixels.
func scale(src image.Image, side int) image.Image {
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	if max(w, h) <= side {
		return src
	}
	toW, toH := max(1, w*side/max(w, h)), max(1, h*side/max(w, h))
	to := image.NewRGBA(image.Rect(0, 0, toW, toH))
	// Each pixel is the mean of those that it replaces. Only a few rows at a time are
	// converted to RGBA, because a large picture would need much memory.
	rows := image.NewRGBA(image.Rect(0, 0, w, (h+toH-1)/toH+1))
	for y := range toH {
		top, bottom := y*h/toH, (y+1)*h/toH
		draw.Draw(rows, image.Rect(0, 0, w, bottom-top), src, b.Min.Add(image.Pt(0, top)), draw.Src)
		for x := range toW {
			left, right := x*w/toW, (x+1)*w/toW
			var sum [4]uint
			for row := range bottom - top {
				at := rows.Pix[row*rows.Stride+4*left : row*rows.Stride+4*right]
				for ; len(at) >= 4; at = at[4:] {
					sum[0] += uint(at[0])
					sum[1] += uint(at[1])
					sum[2] += uint(at[2])
					sum[3] += uint(at[3])
				}
			}
			n := uint((right - left) * (bottom - top))
			for i, v := range sum {
				to.Pix[y*to.Stride+4*x+i] = uint8((v + n/2) / n)
			}
		}
	}
	return to
}
