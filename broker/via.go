package broker

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// maxHubBytes limits the id of a hub, a UUID.
const maxHubBytes = 64

// via returns the hubs that an order has come through. It refuses an order that has come
// through this one: brokers that sell each other's plans would order from each other without
// end. It also refuses one that has come through more than v1alpha1.MaxSluices others.
func (s *server) via(c *call) ([]string, error) {
	hubs := osbclient.Via(c.Header)
	switch {
	case slices.Contains(hubs, s.Hub):
		return nil, &Error{Status: http.StatusUnprocessableEntity, Code: codeLoopDetected,
			Description: "The order has come through this broker already: brokers sell each other's plans in a circle. One of their operators has to remove the other broker from its plan's candidates."}
	case len(hubs) > v1alpha1.MaxSluices:
		return nil, &Error{Status: http.StatusUnprocessableEntity, Code: codeLoopDetected,
			Description: fmt.Sprintf("The order has come through more than %d brokers. One of their operators has to sell a plan of a broker that is nearer to its provider.", v1alpha1.MaxSluices)}
	case slices.ContainsFunc(hubs, func(id string) bool { return len(id) > maxHubBytes }):
		return nil, badRequest("Via: the id of a hub has more than %d bytes.", maxHubBytes)
	}
	return hubs, nil
}
