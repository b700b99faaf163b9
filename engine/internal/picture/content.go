package picture

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/parley-go/parley/wire"
)

// FitContent converts the pictures of a message so that models accept them. One that no
// model accepts is replaced by text; problems lists which and why.
func FitContent(content wire.Content) (_ wire.Content, problems []string) {
	var blocks []wire.Block
	for i, b := range content.Blocks {
		img, ok := b.(*wire.ImageBlock)
		if !ok || img.Source != nil && img.Source.Type != "base64" {
			continue // no data to check
		}
		fit, err := fitBlock(img)
		if err != nil {
			problems = append(problems, err.Error())
			fit = Placeholder(err.Error())
		}
		if blocks == nil {
			blocks = append(blocks, content.Blocks...)
		}
		blocks[i] = fit
	}
	if blocks == nil {
		return content, nil
	}
	content.Blocks = blocks
	return content, problems
}

// Placeholder returns the text that replaces a picture.
func Placeholder(reason string) *wire.TextBlock {
	return &wire.TextBlock{Text: "[A picture was left out: " + reason + ".]"}
}

// LeftOut returns the message to the host that a picture was left out of the
// conversation.
func LeftOut(text string) wire.Message {
	return &wire.Informational{Content: text, Level: "warning", Tag: "content_quarantined"}
}

func fitBlock(img *wire.ImageBlock) (wire.Block, error) {
	if img.Source == nil {
		return nil, errors.New("it has no source")
	}
	if len(img.Source.Data) > MaxInput*4/3+4 {
		return nil, fmt.Errorf("it is bigger than %d bytes", MaxInput)
	}
	data, err := base64.StdEncoding.DecodeString(img.Source.Data)
	if err != nil {
		return nil, errors.New("its data is not base64")
	}
	p, err := Fit(data)
	if err != nil {
		return nil, err
	}
	if !p.Changed && p.Type == img.Source.MediaType {
		return img, nil
	}
	fit := *img
	src := *img.Source
	src.MediaType = p.Type
	if p.Changed {
		src.Data = base64.StdEncoding.EncodeToString(p.Data)
	}
	fit.Source = &src
	return &fit, nil
}
