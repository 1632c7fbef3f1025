package backends_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
)

// Programs that take turns keep their own memory and borrow the same: from each pool the largest buffers, as many as the one with the most of them takes.
func TestWorkspaceAdds(t *testing.T) {
	var all backends.Workspace
	require.Zero(t, all.Bytes())
	a := backends.Workspace{Own: 10}
	a.Share("x", backends.Borrowed{Buffers: 2, Bytes: 100})
	a.Share("y", backends.Borrowed{Buffers: 1, Bytes: 7})
	b := backends.Workspace{Own: 5}
	b.Share("x", backends.Borrowed{Buffers: 1, Bytes: 300})
	b.Share("z", backends.Borrowed{Buffers: 0, Bytes: 300})
	require.EqualValues(t, 10+2*100+7, a.Bytes())
	require.EqualValues(t, 5+300, b.Bytes())
	all.Add(a)
	all.Add(b)
	all.Add(b)
	require.EqualValues(t, 10+5+5+2*300+7, all.Bytes())
	require.EqualValues(t, 10+2*100+7, a.Bytes(), "what is added stays as it was")
}
