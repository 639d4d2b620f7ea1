package server

import (
	"context"
	"net/http"

	"github.com/sluice-dev/sluice/selfdescription"
)

// Login returns a function that returns the provider that sent a presentation over a challenge for the operation
// "login". A presentation works once, on all replicas. The error is an *Error if the presentation is refused. Only
// Hub, Live, Namespace, DID, Seal, Book, Keys and Clock of the options are used.
func Login(o Options) func(ctx context.Context, presentation string) (provider string, err error) {
	s := newServer(o)
	return func(ctx context.Context, presentation string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return s.login(ctx, presentation)
	}
}

func (s *server) login(ctx context.Context, compact string) (string, error) {
	if s.DID == "" {
		return "", errNameless
	}
	if err := s.Book.Refresh(ctx, s.Hub, s.Namespace); err != nil {
		return "", err
	}
	presentation, answer, err := s.judge(ctx, compact, selfdescription.OperationLogin)
	if err != nil {
		return "", err
	}
	if presentation == nil {
		return "", &Error{http.StatusUnprocessableEntity, "The presentation was " + refused(&answer.Report) + "."}
	}
	who, err := s.presenter(presentation)
	if err != nil {
		return "", err
	}
	if who.Provider == "" {
		return "", &Error{http.StatusForbidden, "A consumer has no token of its own; its platform orders for it."}
	}
	if err := s.use(ctx, who, presentation.nonce); err != nil {
		return "", err
	}
	return who.Provider, nil
}
