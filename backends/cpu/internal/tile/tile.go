// Package tile says how the tile registers of amd64 are configured. There are eight, of at most 16 rows of 64 bytes; one configuration holds for
// all, and loading it clears them. Kernels load it at their start and release it at their end, so that no other code, and no switch of threads
// in it, meets tiles that hold something.
package tile

import "encoding/binary"

// The size of a tile register at most.
const (
	Rows  = 16
	Bytes = 64 // of a row
)

// Config is what LDTILECFG loads.
type Config [64]byte

// Set gives tile i its rows, at most [Rows], and the bytes of each, at most [Bytes] and a multiple of 4. A tile without rows cannot be used.
func (c *Config) Set(i, rows, bytes int) {
	c[0] = 1 // the palette of eight tiles
	binary.LittleEndian.PutUint16(c[16+2*i:], uint16(bytes))
	c[48+i] = uint8(rows)
}
