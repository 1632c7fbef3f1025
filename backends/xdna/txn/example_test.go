package txn_test

import (
	"fmt"
	"os"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// A transfer of 64 x 48 words, 768 words from row to row, written to host buffer 2 as it arrives on S2MM0 of column 1.
func Example() {
	m := txn.Memcpy{
		Dev: device.XDNA, Col: 1, Dir: device.S2MM, ElemBits: 32, Arg: 2, Burst: 2,
		Sizes: [4]int64{1, 1, 64, 48}, Strides: [4]int64{0, 0, 768, 1},
	}
	t, err := m.Lower()
	if err != nil {
		fmt.Println(err)
		return
	}
	ops, _ := t.Ops()
	p := &txn.Program{Head: txn.NewHeader(device.XDNA), List: ops}
	p.Add(txn.SyncOp(t.Tile, m.Dir, m.Channel, 1, 1))
	words, _ := txn.Encode(p)
	fmt.Println(len(words), "words")
	_ = txn.Format(os.Stdout, p)
	// Output:
	// 45 words
	// txn 0.1 devgen=3 rows=6 cols=4 memtile_rows=1
	// blockwrite 0x0201d000 0x00000c00 0x00000000 0x00000000 0x03000000 0x840002ff 0x00000000 0x00000000 0x02000000 # shim (1,0) bd 0: 3072 words, 48 x 1, 64 x 768
	// ddr_patch 0x0201d004 arg=2 offset=0x0                        # shim (1,0) bd 0 address
	// maskwrite 0x0201d200 0x00000f00 0x00000f00                   # shim (1,0) s2mm0 control
	// write 0x0201d204 0x80000000                                  # shim (1,0) s2mm0 queue: bd 0, token
	// sync col=1 row=0 dir=s2mm channel=0 cols=1 rows=1
}
