// Package control is the HTTP of the control plane: everything below /_electric
// and the OpenAPI description.
//
// It owns the routes, their validation, their codes and who may call them. It
// promises that a path is decoded once and never redirected, that a body is
// checked whole before it has any effect, that no refusal echoes a value, and
// that each mutation is one call of one SQL function. It knows HTTP and the
// store's types and nothing of pgx; the mutex is package claims', streams are
// package streams'. It is the only importer of huma.
package control
