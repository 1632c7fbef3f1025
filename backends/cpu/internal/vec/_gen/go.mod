module github.com/tessera-go/tessera/backends/cpu/internal/vec/_gen

go 1.26.0
