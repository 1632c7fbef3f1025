module github.com/tessera-go/tessera/backends/cpu/gemm/_gen

go 1.26.0
