package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/problem"
)

// DefaultService is the scope used when a request names none.
const DefaultService = "default"

// Service is one row of rouse.services.
type Service struct {
	ID        int32
	Name      string
	CreatedAt time.Time
}

// ServiceCreate makes a service: created, exists or invalid.
func (s *Store) ServiceCreate(ctx context.Context, name, principal string) (string, Service, error) {
	var outcome string
	var id *int32
	var at *time.Time
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome, &id, &at) },
		`select * from rouse.service_create($1::text, $2::text)`, name, principal)
	return outcome, Service{ID: num(id), Name: name, CreatedAt: num(at)}, err
}

// ServiceGet looks a service up; [ErrNoRow] when there is none.
func (s *Store) ServiceGet(ctx context.Context, name string) (Service, error) {
	var v Service
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&v.ID, &v.Name, &v.CreatedAt) },
		`select id, name, created_at from rouse.service_get($1::text)`, name)
	return v, err
}

// ServiceList lists all services by name.
func (s *Store) ServiceList(ctx context.Context) ([]Service, error) {
	out := []Service{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var v Service
		if err := rows.Scan(&v.ID, &v.Name, &v.CreatedAt); err != nil {
			return err
		}
		out = append(out, v)
		return nil
	}, `select id, name, created_at from rouse.service_list()`)
	return out, err
}

// Services resolves the names of ?service= and remembers them: a service's id
// never changes and services are not deleted, so a hit stays true. A miss is
// not remembered, for the service may be made the next moment. It is safe for
// concurrent use.
type Services struct {
	store *Store
	mu    sync.RWMutex
	ids   map[string]int32
}

// maxServices bounds the memory of names; beyond it lookups go to the database.
const maxServices = 10_000

// NewServices resolves through s.
func NewServices(s *Store) *Services {
	return &Services{store: s, ids: map[string]int32{DefaultService: 1}}
}

// ID is the id of a service's name; the empty name is [DefaultService]. An
// unknown name is SERVICE_NOT_FOUND.
func (s *Services) ID(ctx context.Context, name string) (int32, error) {
	if name == "" {
		name = DefaultService
	}
	s.mu.RLock()
	id, ok := s.ids[name]
	s.mu.RUnlock()
	if ok {
		return id, nil
	}
	if len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return 0, errServiceNotFound // no service can have this name
	}
	v, err := s.store.ServiceGet(ctx, name)
	if errors.Is(err, ErrNoRow) {
		return 0, errServiceNotFound
	} else if err != nil {
		return 0, err
	}
	s.mu.Lock()
	if len(s.ids) < maxServices {
		s.ids[name] = v.ID
	}
	s.mu.Unlock()
	return v.ID, nil
}

var errServiceNotFound = problem.New(problem.ServiceNotFound, "There is no service of this name. Check the query parameter \"service\".")
