//go:build amd64 && !noasm

package qgemm

import (
	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// amx multiplies many rows by tiles, and few as avx512 does. It does not differ in what it spreads and quantizes.
var amx = func() kernels {
	k := avx512
	k.name, k.isa, k.tiles = "amx_int8", cpuinfo.AMX, tilesAMX
	return k
}()

// tileConfigs are the configurations of the kernels by block (0: 32, 1: 16) and rows: two sets of sums, A, and W.
var tileConfigs = func() (list [2][tileHeight + 1]tile.Config) {
	for b, block := range []int{32, 16} {
		for rows := 1; rows <= tileHeight; rows++ {
			c := &list[b][rows]
			for t := 0; t < 6; t += 3 {
				c.Set(t, rows, 4*nr)
				c.Set(t+1, rows, block)
				c.Set(t+2, block/4, 4*nr)
			}
		}
	}
	return list
}()

// tilesAMX takes groups through panels. All groups of a call have the rows of the last.
func tilesAMX(p *dotArgs, f *format) {
	b, m := 0, 0
	if f.block == 16 {
		b = 1
	}
	if f.hasMin {
		m = 1
	}
	const lowest = tileHeight / len(amxTiles[0][0])
	amxTiles[b][m][(p.rows-1)/lowest](p, &tileConfigs[b][p.rows])
}
