package read

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/draw"
	_ "image/gif" // so that it can be decoded
	"image/jpeg"
	"image/png"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// pictures are the types of pictures that models take.
var pictures = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// The limits of pictures: what is taken from disk, what models take.
const (
	maxImageFile  = 32 << 20
	maxImageBytes = 3_700_000 // 5 MB as base64
	maxImageSide  = 2000
	maxPixels     = 64_000_000 // that are decoded to make a picture smaller
)

// ImageFile is a picture that was read.
type ImageFile struct {
	Base64       string      `json:"base64"`
	Type         string      `json:"type"`
	OriginalSize int64       `json:"originalSize"`
	Dimensions   *Dimensions `json:"dimensions,omitempty"`
}

// Dimensions are how big a picture is and how big it is shown, in pixels.
type Dimensions struct {
	OriginalWidth  int `json:"originalWidth"`
	OriginalHeight int `json:"originalHeight"`
	DisplayWidth   int `json:"displayWidth"`
	DisplayHeight  int `json:"displayHeight"`
}

// readImage shows a picture, made smaller if it has to be.
func readImage(place *files.Place, kind string) (*tool.Result, error) {
	data, info, err := place.ReadAll(maxImageFile)
	if err != nil {
		return nil, err
	}
	place.Remember(info, data)
	size := int64(len(data))
	width, height := dimensions(data)
	var dims *Dimensions
	if width > 0 && height > 0 {
		dims = &Dimensions{width, height, width, height}
	}
	if len(data) > maxImageBytes || max(width, height) > maxImageSide {
		if data, kind, dims, err = shrink(data, dims); err != nil {
			return nil, fmt.Errorf("%s is too big to be shown (%s) and cannot be made smaller: %w", place.Path, files.Size(size), err)
		}
	}
	block := &wire.ImageBlock{Source: wire.Base64(kind, data)}
	file := &ImageFile{Base64: base64.StdEncoding.EncodeToString(data), Type: kind, OriginalSize: size, Dimensions: dims}
	return &tool.Result{Content: wire.Blocks(block), Structured: &Output{Type: "image", File: file}}, nil
}

// dimensions reads the size of a picture from its header; zero if it cannot.
func dimensions(data []byte) (width, height int) {
	if c, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		return c.Width, c.Height
	}
	if len(data) < 30 || string(data[8:12]) != "WEBP" {
		return 0, 0
	}
	switch string(data[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(data[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(data[28:]) & 0x3fff)
	case "VP8L":
		bits := binary.LittleEndian.Uint32(data[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case "VP8X":
		return 1 + int(data[24]) + int(data[25])<<8 + int(data[26])<<16, 1 + int(data[27]) + int(data[28])<<8 + int(data[29])<<16
	}
	return 0, 0
}

// shrink makes a picture smaller until models take it.
func shrink(data []byte, dims *Dimensions) ([]byte, string, *Dimensions, error) {
	if dims == nil {
		return nil, "", nil, fmt.Errorf("its size is not known")
	}
	if dims.OriginalWidth*dims.OriginalHeight > maxPixels {
		return nil, "", nil, fmt.Errorf("it has %d × %d pixels", dims.OriginalWidth, dims.OriginalHeight)
	}
	src, format, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, "", nil, err
	}
	side := min(maxImageSide, max(dims.OriginalWidth, dims.OriginalHeight))
	for range 6 {
		small := scale(src, side)
		var b bytes.Buffer
		kind := "image/jpeg"
		if format == "png" {
			kind = "image/png"
			err = png.Encode(&b, small)
		} else {
			err = jpeg.Encode(&b, small, &jpeg.Options{Quality: 85})
		}
		if err != nil {
			return nil, "", nil, err
		}
		if b.Len() <= maxImageBytes {
			bounds := small.Bounds()
			return b.Bytes(), kind, &Dimensions{dims.OriginalWidth, dims.OriginalHeight, bounds.Dx(), bounds.Dy()}, nil
		}
		format = "jpeg"
		side = side * 3 / 4
	}
	return nil, "", nil, fmt.Errorf("it stays too big")
}

// scale makes a picture so big that its longer side has so many pixels; each is
// the mean of those it stands for.
func scale(src image.Image, side int) image.Image {
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	if max(w, h) <= side {
		return src
	}
	dw, dh := max(1, w*side/max(w, h)), max(1, h*side/max(w, h))
	from := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(from, from.Bounds(), src, b.Min, draw.Src)
	to := image.NewRGBA(image.Rect(0, 0, dw, dh))
	for y := range dh {
		y0, y1 := y*h/dh, max((y+1)*h/dh, y*h/dh+1)
		for x := range dw {
			x0, x1 := x*w/dw, max((x+1)*w/dw, x*w/dw+1)
			var sum [4]int
			for sy := y0; sy < y1; sy++ {
				row := from.Pix[sy*from.Stride+4*x0 : sy*from.Stride+4*x1]
				for ; len(row) >= 4; row = row[4:] {
					sum[0] += int(row[0])
					sum[1] += int(row[1])
					sum[2] += int(row[2])
					sum[3] += int(row[3])
				}
			}
			n := (y1 - y0) * (x1 - x0)
			at := to.Pix[y*to.Stride+4*x:]
			at[0], at[1], at[2], at[3] = byte(sum[0]/n), byte(sum[1]/n), byte(sum[2]/n), byte(sum[3]/n)
		}
	}
	return to
}
