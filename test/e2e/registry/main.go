// Command registry serves images from memory to whoever has the password, over HTTP: what a private
// registry is to a node, for tests. It ends by itself.
//
//	registry ADDRESS USER PASSWORD LIFETIME
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("want ADDRESS USER PASSWORD LIFETIME")
	}
	lifetime, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	images := registry.New()
	server := &http.Server{Addr: args[0], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(args[1]+":"+args[2])) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	})}
	time.AfterFunc(lifetime, func() { _ = server.Shutdown(context.Background()) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
