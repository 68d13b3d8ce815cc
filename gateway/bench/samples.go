package main

import (
	"slices"
	"sync"
	"time"
)

// samples gathers durations from many goroutines.
type samples struct {
	mu  sync.Mutex
	all []time.Duration
}

func (s *samples) add(d ...time.Duration) {
	s.mu.Lock()
	s.all = append(s.all, d...)
	s.mu.Unlock()
}

func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// quantile returns the value that the share q of the samples does not exceed, in milliseconds; 0 without samples.
func (s *samples) quantile(q float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	slices.Sort(s.all)
	i := min(int(q*float64(len(s.all))), len(s.all)-1)
	return float64(s.all[i]) / float64(time.Millisecond)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
