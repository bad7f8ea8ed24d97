package jetstream

import "context"

// Delete deletes a session up to a message.
func (st *Store) Delete(ctx context.Context, id string, last uint64) error {
	return st.delete(ctx, id, last)
}
