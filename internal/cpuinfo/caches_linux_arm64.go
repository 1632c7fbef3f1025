//go:build !noasm

package cpuinfo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// systemCaches returns the sizes of the first processor's data caches of level 1 and 2 as Linux lists them, 0 where it does not: the
// instruction set has no way to ask that programs may use.
func systemCaches() (l1d, l2 int) { return cachesIn("/sys/devices/system/cpu/cpu0/cache") }

func cachesIn(dir string) (l1d, l2 int) {
	paths, _ := filepath.Glob(filepath.Join(dir, "index*"))
	for _, path := range paths {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(path, name))
			return strings.TrimSpace(string(b))
		}
		digits := strings.TrimRight(read("size"), "KM")
		size, err := strconv.ParseUint(digits, 10, 20)
		if err != nil || read("type") == "Instruction" {
			continue
		}
		bytes := int(size)
		switch unit := strings.TrimPrefix(read("size"), digits); unit {
		case "K":
			bytes <<= 10
		case "M":
			bytes <<= 20
		}
		switch read("level") {
		case "1":
			l1d = bytes
		case "2":
			l2 = bytes
		}
	}
	return l1d, l2
}
