package llm

import (
	"testing"

	"github.com/tessera-go/tessera/ops"
)

// SetActivation changes an architecture's activation for the rest of a test.
func SetActivation(t testing.TB, arch string, act ops.Activation) {
	f := families[arch]
	old := f
	f.act = act
	families[arch] = f
	t.Cleanup(func() { families[arch] = old })
}
