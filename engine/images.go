package engine

import (
	"slices"

	"github.com/parley-go/parley/wire"
)

func hasPicture(content wire.Content) bool {
	return slices.ContainsFunc(content.Blocks, func(b wire.Block) bool { _, ok := b.(*wire.ImageBlock); return ok })
}
