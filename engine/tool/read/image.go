package read

import (
	"encoding/base64"
	"fmt"

	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// ImageFile is a picture, as a structured result.
type ImageFile struct {
	Base64       string      `json:"base64"`
	Type         string      `json:"type"`
	OriginalSize int64       `json:"originalSize"`
	Dimensions   *Dimensions `json:"dimensions,omitempty"`
}

// Dimensions are the original and the displayed size of a picture, in pixels.
type Dimensions struct {
	OriginalWidth  int `json:"originalWidth"`
	OriginalHeight int `json:"originalHeight"`
	DisplayWidth   int `json:"displayWidth"`
	DisplayHeight  int `json:"displayHeight"`
}

// readImage reads a picture and makes it smaller if necessary.
func readImage(place *files.Place) (*tool.Result, error) {
	data, info, err := place.ReadAll(picture.MaxInput)
	if err != nil {
		return nil, err
	}
	place.Remember(info, data)
	p, err := picture.Fit(data)
	if err != nil {
		return nil, fmt.Errorf("%s (%s) cannot be shown: %w", place.Path, files.Size(int64(len(data))), err)
	}
	block := &wire.ImageBlock{Source: wire.Base64(p.Type, p.Data)}
	file := &ImageFile{Base64: base64.StdEncoding.EncodeToString(p.Data), Type: p.Type, OriginalSize: int64(len(data)),
		Dimensions: &Dimensions{p.OriginalWidth, p.OriginalHeight, p.Width, p.Height}}
	return &tool.Result{Content: wire.Blocks(block), Structured: &Output{Type: "image", File: file}}, nil
}
