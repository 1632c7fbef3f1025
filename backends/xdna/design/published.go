package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// published are the designs of tables 2 and 3 of arXiv 2512.13282, first- and second-ranked. The k_mt of second-ranked rows is not printed there;
// it is the multiple of k that gives the printed L2 total.
var published = []struct {
	dev   *device.Device
	types string
	rank  int
	tile  Tile
	kmt   int
}{
	{device.XDNA, "int8-int8", 1, Tile{112, 112, 112}, 448},
	{device.XDNA, "int8-int8", 2, Tile{112, 104, 128}, 416},
	{device.XDNA, "int8-int16", 1, Tile{96, 112, 96}, 448},
	{device.XDNA, "int8-int16", 2, Tile{80, 104, 128}, 416},
	{device.XDNA, "int8-int32", 1, Tile{80, 88, 96}, 352},
	{device.XDNA, "int8-int32", 2, Tile{64, 80, 128}, 320},
	{device.XDNA, "bf16-bf16", 1, Tile{96, 56, 96}, 224},
	{device.XDNA, "bf16-bf16", 2, Tile{96, 48, 112}, 192},
	{device.XDNA2, "int8-int8", 1, Tile{144, 72, 144}, 432},
	{device.XDNA2, "int8-int8", 2, Tile{160, 64, 144}, 384},
	{device.XDNA2, "int8-int16", 1, Tile{128, 72, 112}, 432},
	{device.XDNA2, "int8-int16", 2, Tile{160, 64, 96}, 384},
	{device.XDNA2, "int8-int32", 1, Tile{96, 64, 96}, 384},
	{device.XDNA2, "int8-int32", 2, Tile{128, 56, 80}, 336},
	{device.XDNA2, "bf16-bf16", 1, Tile{112, 48, 96}, 384},
	{device.XDNA2, "bf16-bf16", 2, Tile{160, 40, 80}, 320},
}

// Published is the design that arXiv 2512.13282 ranks first (1) or second (2) for a device and type pair, with B column-major.
func Published(dev *device.Device, types device.Types, rank int) (*Design, error) {
	for _, p := range published {
		if p.dev == dev && p.rank == rank && p.types == types.String() {
			return &Design{Dev: dev, Types: types, Tile: p.tile, KMT: p.kmt, BLayout: ColMajor}, nil
		}
	}
	return nil, fmt.Errorf("arXiv 2512.13282 has no design of rank %d for %v on %s", rank, types, dev.Name)
}
