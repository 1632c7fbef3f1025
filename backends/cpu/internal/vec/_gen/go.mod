module github.com/tessera-go/tessera/backends/cpu/internal/vec/_gen

go 1.26.0

require github.com/tessera-go/tessera/backends/cpu/_encode v0.0.0

replace github.com/tessera-go/tessera/backends/cpu/_encode => ../../../_encode
