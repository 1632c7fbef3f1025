package design_test

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// One configuration serves every size: only the run-time stream differs.
func Example() {
	types, _ := device.ParseTypes("int8-int16")
	d := &design.Design{Dev: device.XDNA2, Types: types, Tile: design.Tile{M: 128, K: 72, N: 112}, KMT: 432, BLayout: design.ColMajor}
	if err := d.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	m, k, n := d.Native()
	fmt.Printf("native %d x %d x %d, L1 %d bytes, L2 %d KB\n", m, k, n, d.L1Bytes(), d.L2Bytes()>>10)
	config, _ := d.Config()
	st, _ := txn.Measure(config)
	fmt.Println("configuration:", st.Ops, "operations")
	for _, p := range []design.Problem{{M: 4096, K: 4320, N: 4480}, {M: 100, K: 288, N: 1000}} {
		run, err := d.Run(p)
		if err != nil {
			fmt.Println(err)
			return
		}
		st, _ := txn.Measure(run)
		fmt.Printf("%d x %d x %d: %d operations, %d bytes staged, %.0f %% useful\n", p.M, p.K, p.N, st.Ops, run.Staging.Bytes(), run.UsefulPercent())
	}
	// Output:
	// native 512 x 432 x 896, L1 63232 bytes, L2 2084 KB
	// configuration: 1344 operations
	// 4096 x 4320 x 4480: 3544 operations, 0 bytes staged, 100 % useful
	// 100 x 288 x 1000: 264 operations, 511552 bytes staged, 7 % useful
}
