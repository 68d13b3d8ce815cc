package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestARestEndsWithItsTimeOrItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Rest(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("rested for %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Rest(ctx, time.Hour) || time.Since(began) != time.Hour+time.Second {
			t.Errorf("rested for %v", time.Since(began))
		}
	})
}

func TestSpreadStaysWithinATenth(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := Spread(time.Minute); d < 54*time.Second || d > 66*time.Second {
			t.Fatal(d)
		}
	}
	if d := Spread(0); d != 0 {
		t.Error(d)
	}
}

func TestAPokeIsHeardOnce(t *testing.T) {
	t.Parallel()
	c := make(chan struct{}, 1)
	Poke(c)
	Poke(c)
	if <-c; len(c) != 0 {
		t.Error("it is heard twice")
	}
}
