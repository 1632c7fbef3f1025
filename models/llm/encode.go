package llm

import (
	"context"
	"errors"

	"github.com/tessera-go/tessera/graph"
)

// encoderProgram is a compiled encoder.
type encoderProgram struct{ exe *graph.Executable }

func (m *Model) checkEncoder() error { return errors.New("llm: encoders cannot be run yet") }

func (m *Model) encoder(context.Context) (*encoderProgram, error) { return nil, m.checkEncoder() }

func (m *Model) closeEncoder() error { return nil }
