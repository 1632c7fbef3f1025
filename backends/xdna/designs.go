package xdna

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// tiles are the tiles that serve a type pair: the first-ranked ones of tables 2 and 3 of arXiv 2512.13282, with its k_mt (section 4.7 of the facts). The paper has none for
// float32 results and bfp16 weights; those are the largest m n whose buffers fit into 63 KB at a k near the paper's.
var tiles = map[string]map[string]struct {
	tile design.Tile
	kmt  int
}{
	"xdna": {
		"int8-int8":  {design.Tile{M: 112, K: 112, N: 112}, 448},
		"int8-int16": {design.Tile{M: 96, K: 112, N: 96}, 448},
		"int8-int32": {design.Tile{M: 80, K: 88, N: 96}, 352},
		"bf16-bf16":  {design.Tile{M: 96, K: 56, N: 96}, 224},
		"bf16-f32":   {design.Tile{M: 80, K: 48, N: 96}, 192},
	},
	"xdna2": {
		"int8-int8":       {design.Tile{M: 144, K: 72, N: 144}, 432},
		"int8-int16":      {design.Tile{M: 128, K: 72, N: 112}, 432},
		"int8-int32":      {design.Tile{M: 96, K: 64, N: 96}, 384},
		"bf16-bf16":       {design.Tile{M: 112, K: 48, N: 96}, 384},
		"bf16-f32":        {design.Tile{M: 80, K: 48, N: 96}, 384},
		"bf16-bfp16":      {design.Tile{M: 112, K: 48, N: 128}, 192},
		"bf16-bfp16-f32":  {design.Tile{M: 96, K: 48, N: 80}, 192},
		"bfp16-bfp16":     {design.Tile{M: 128, K: 48, N: 128}, 192},
		"bfp16-bfp16-f32": {design.Tile{M: 96, K: 48, N: 96}, 192},
	},
}

// DefaultDesign returns the design that serves a type pair unless another is asked for.
func DefaultDesign(dev *device.Device, types device.Types, layout design.Layout) (*design.Design, error) {
	t, ok := tiles[dev.Name][types.String()]
	if !ok {
		_, err := dev.Mode(types)
		if err == nil {
			err = fmt.Errorf("%s: no design for %v", dev.Name, types)
		}
		return nil, err
	}
	if types.B == kernel.BFP16 {
		layout = design.Tiled
	}
	return &design.Design{Dev: dev, Types: types, Tile: t.tile, KMT: t.kmt, BLayout: layout}, nil
}
